"""Masked language modelling with a RoBERTa: a few steps, then the accuracy on a validation set."""
import torch
from transformers import RobertaConfig, RobertaForMaskedLM

STEPS, EVALUATION_BATCHES = 4, 60
BATCH, LENGTH = 8, 128
CONFIG = RobertaConfig(vocab_size=50265, hidden_size=512, num_hidden_layers=6, num_attention_heads=8,
                       intermediate_size=2048)


def batches(count):
    for _ in range(count):
        tokens = torch.randint(5, CONFIG.vocab_size, (BATCH, LENGTH))
        labels = torch.where(torch.rand(tokens.shape) < 0.15, tokens, -100)
        yield {"input_ids": tokens.cuda(), "attention_mask": torch.ones_like(tokens).cuda(), "labels": labels.cuda()}


def training_loop(model):
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5)
    for inputs in batches(STEPS):
        loss = model(**inputs).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"loss {loss.item():.3f}", flush=True)


def compute_metrics(predictions, labels):
    if predictions.dim() == 3:
        predictions = predictions.argmax(-1)
    masked = labels != -100
    return {"accuracy": (predictions[masked] == labels[masked]).float().mean().item()}


def prediction_loop(model):
    model.eval()
    preds, label_ids, losses = None, None, []
    for inputs in batches(EVALUATION_BATCHES):
        with torch.no_grad():
            outputs = model(**inputs)
        losses.append(outputs.loss.item())
        logits = outputs.logits
        preds = logits if preds is None else torch.cat((preds, logits), dim=0)
        label_ids = inputs["labels"] if label_ids is None else torch.cat((label_ids, inputs["labels"]), dim=0)
    return {"loss": sum(losses) / len(losses), **compute_metrics(preds, label_ids)}


def main():
    model = RobertaForMaskedLM(CONFIG).cuda()
    training_loop(model)
    print(prediction_loop(model))


if __name__ == "__main__":
    main()
