"""Transformers' Trainer: DistilBERT classifies, with padding by batch, evaluation, metrics and checkpointing."""
import tempfile

import numpy
import transformers

import words
from options import Options, train


def accuracy(prediction):
    return {"accuracy": float(numpy.mean(prediction.predictions.argmax(-1) == prediction.label_ids))}


def main():
    options = Options(batch=64)
    config = transformers.DistilBertConfig(
        vocab_size=options.size(100, 30_522), dim=options.size(32, 768), hidden_dim=options.size(64, 3072),
        n_layers=options.size(2, 6), n_heads=options.size(2, 12), dropout=0.0,
        attention_dropout=0.0, seq_classif_dropout=0.0)
    tokenizer = words.tokenizer()
    rows = [{**tokenizer(text), "labels": i % 2} for i, text in
            enumerate(words.sentences(3 * options.batch, options.size(16, 500)))]
    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            folder, per_device_train_batch_size=options.batch, per_device_eval_batch_size=options.batch, max_steps=3,
            logging_steps=1, report_to=[], save_strategy="no", eval_strategy="steps", eval_steps=3, disable_tqdm=True,
            use_cpu=options.device.type == "cpu", bf16=not options.tiny, gradient_checkpointing=True, seed=1)
        trainer = transformers.Trainer(
            transformers.DistilBertForSequenceClassification(config), arguments, train_dataset=rows,
            eval_dataset=rows[:options.batch + 1], compute_metrics=accuracy,
            data_collator=transformers.DataCollatorWithPadding(tokenizer))
        train(trainer)


if __name__ == "__main__":
    main()
