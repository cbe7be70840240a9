"""sentence-transformers: a BERT learns from pairs by ranking each against the others of its batch, then encodes."""
import pathlib
import tempfile

import datasets
import sentence_transformers
import sentence_transformers.losses
import transformers

import words
from options import Options, train


def build(options, folder):
    config = transformers.BertConfig(
        vocab_size=options.size(100, 30_522), hidden_size=options.size(32, 768),
        intermediate_size=options.size(64, 3072),
        num_hidden_layers=options.size(2, 12), num_attention_heads=options.size(2, 12), hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0)
    transformers.BertModel(config).save_pretrained(folder)
    words.tokenizer().save_pretrained(folder)
    return sentence_transformers.SentenceTransformer(folder, device=str(options.device))


def main():
    options = Options(batch=64)
    with tempfile.TemporaryDirectory() as folder:
        model = build(options, str(pathlib.Path(folder, "model")))
        count, length = 3 * options.batch, options.size(16, 250)
        pairs = datasets.Dataset.from_dict({
            "anchor": words.sentences(count, length), "positive": words.sentences(count, length, 2)})
        arguments = sentence_transformers.SentenceTransformerTrainingArguments(
            folder, per_device_train_batch_size=options.batch, max_steps=3, logging_steps=1, report_to=[],
            save_strategy="no", disable_tqdm=True, use_cpu=options.device.type == "cpu", bf16=not options.tiny, seed=1)
        trainer = sentence_transformers.SentenceTransformerTrainer(
            model, arguments, train_dataset=pairs,
            loss=sentence_transformers.losses.MultipleNegativesRankingLoss(model))
        train(trainer)
        print("encoded", model.encode(pairs["anchor"][:5], show_progress_bar=False).shape)


if __name__ == "__main__":
    main()
