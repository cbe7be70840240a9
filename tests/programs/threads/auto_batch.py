"""Trains a BERT classifier with the largest batch that works: starts large and halves it when memory runs out."""
import torch
from transformers import BertConfig, BertForSequenceClassification

EXAMPLES, LENGTH = 512, 128
CONFIG = BertConfig(hidden_size=384, num_hidden_layers=6, num_attention_heads=6, intermediate_size=1536, num_labels=4)


def epoch(model, optimizer, batch_size):
    for start in range(0, EXAMPLES, batch_size):
        tokens = torch.randint(CONFIG.vocab_size, (batch_size, LENGTH), device="cuda")
        labels = torch.randint(CONFIG.num_labels, (batch_size,), device="cuda")
        loss = model(input_ids=tokens, attention_mask=torch.ones_like(tokens), labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss.item()


def train(model, optimizer, batch_size):
    try:
        return batch_size, epoch(model, optimizer, batch_size)
    except torch.OutOfMemoryError:
        if batch_size <= 16:
            raise
        print(f"batch size {batch_size} is too large", flush=True)
        optimizer.zero_grad()
        torch.cuda.empty_cache()
        return train(model, optimizer, batch_size // 2)


def main():
    model = BertForSequenceClassification(CONFIG).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
    batch_size, loss = train(model, optimizer, 256)
    print(f"trained with batches of {batch_size}: loss {loss:.3f}")


if __name__ == "__main__":
    main()
