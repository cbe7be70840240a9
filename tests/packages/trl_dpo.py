"""TRL: preferences by its DPOTrainer, with a reference model beside the one that learns."""
import tempfile

import datasets
import transformers
import trl

import words
from options import Options, train


def main():
    options = Options(batch=2)
    config = transformers.LlamaConfig(
        vocab_size=options.size(100, 32_000), hidden_size=options.size(32, 1024),
        intermediate_size=options.size(64, 2816), num_hidden_layers=options.size(2, 16),
        num_attention_heads=options.size(2, 16))
    count, length = 8 * options.batch, options.size(8, 400)
    rows = datasets.Dataset.from_dict({
        name: words.sentences(count, length, seed) for seed, name in enumerate(("prompt", "chosen", "rejected"))})
    with tempfile.TemporaryDirectory() as folder:
        arguments = trl.DPOConfig(
            folder, per_device_train_batch_size=options.batch, max_steps=3, logging_steps=1, report_to=[],
            save_strategy="no", disable_tqdm=True, use_cpu=options.device.type == "cpu", bf16=not options.tiny, seed=1,
            max_length=options.size(32, 1024), gradient_accumulation_steps=1)
        learning, reference = transformers.LlamaForCausalLM(config), transformers.LlamaForCausalLM(config)
        trainer = trl.DPOTrainer(learning, reference, arguments, train_dataset=rows, processing_class=words.tokenizer())
        train(trainer)


if __name__ == "__main__":
    main()
