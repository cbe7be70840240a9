"""Image captioning: a ViT encoder and a GPT-2 decoder, with validation after each epoch."""
import torch
from transformers import GPT2Config, VisionEncoderDecoderConfig, VisionEncoderDecoderModel, ViTConfig

EPOCHS, TRAIN_BATCHES, VALIDATION_BATCHES = 2, 4, 4
BATCH, WORDS, VOCABULARY = 96, 50, 9490


def make_model():
    encoder = ViTConfig(hidden_size=384, num_hidden_layers=12, num_attention_heads=6, intermediate_size=1536)
    decoder = GPT2Config(n_embd=384, n_layer=6, n_head=6, vocab_size=VOCABULARY, n_positions=64,
                         add_cross_attention=True, is_decoder=True)
    config = VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    config.decoder_start_token_id, config.pad_token_id = 1, 0
    return VisionEncoderDecoderModel(config).cuda()


def batches(count):
    for _ in range(count):
        images = torch.randn(BATCH, 3, 224, 224)
        captions = torch.randint(2, VOCABULARY, (BATCH, WORDS))
        yield images.cuda(non_blocking=True), captions.cuda(non_blocking=True)


def train(model, optimizer, epoch):
    model.train()
    for number, (images, captions) in enumerate(batches(TRAIN_BATCHES)):
        loss = model(pixel_values=images, labels=captions).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        print(f"epoch {epoch} batch {number}: loss {loss.item():.3f}", flush=True)


def validate(model):
    model.eval()
    losses, right, words = [], 0, 0
    for images, captions in batches(VALIDATION_BATCHES):
        output = model(pixel_values=images, labels=captions)
        scores = output.logits
        losses.append(output.loss.item())
        right += (scores.argmax(-1) == captions).sum().item()
        words += captions.numel()
    return sum(losses) / len(losses), right / words


def main():
    model = make_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-4)
    for epoch in range(EPOCHS):
        train(model, optimizer, epoch)
        loss, accuracy = validate(model)
        print(f"epoch {epoch}: validation loss {loss:.3f}, accuracy {accuracy:.3f}", flush=True)


if __name__ == "__main__":
    main()
