"""PEFT: LoRA on all linear layers of a Qwen2, trained by Transformers' Trainer, then merged."""
import tempfile

import peft
import torch
import transformers

from options import Options, train


def main():
    options = Options(batch=4)
    config = transformers.Qwen2Config(
        vocab_size=options.size(100, 151_936), hidden_size=options.size(32, 896),
        intermediate_size=options.size(64, 4864), num_hidden_layers=options.size(2, 24),
        num_attention_heads=options.size(2, 14), num_key_value_heads=options.size(1, 2))
    model = peft.get_peft_model(
        transformers.Qwen2ForCausalLM(config).to(torch.float32 if options.tiny else torch.bfloat16),
        peft.LoraConfig(r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM"))
    tokens = torch.randint(0, config.vocab_size, (3 * options.batch, options.size(16, 1024)))
    rows = [{"input_ids": row, "labels": row} for row in tokens]
    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            folder, per_device_train_batch_size=options.batch, max_steps=3, logging_steps=1, report_to=[],
            save_strategy="no", disable_tqdm=True, use_cpu=options.device.type == "cpu", bf16=not options.tiny, seed=1)
        trainer = transformers.Trainer(model, arguments, train_dataset=rows)
        train(trainer)
    print("merged", type(model.merge_and_unload()).__name__)


if __name__ == "__main__":
    main()
