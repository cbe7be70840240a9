"""Hugging Face's Trainer: its training_step, which a subclass may override, is the micro-batch that is redone."""
import tempfile

import torch
from transformers import Trainer, TrainingArguments

import training


class Rows(torch.utils.data.Dataset):
    def __init__(self, micro_batches):
        self._rows = torch.cat(training.batches(micro_batches))

    def __len__(self):
        return len(self._rows)

    def __getitem__(self, index):
        return {"input_ids": self._rows[index], "labels": self._rows[index]}


def trainer_class(step, faults):
    class Recovering(Trainer):
        def training_step(self, model, inputs, num_items_in_batch=None):
            loss = self.redone(model, inputs, num_items_in_batch)
            faults.end()
            return loss

        @step
        def redone(self, model, inputs, num_items_in_batch):
            faults.begin()
            return super().training_step(model, inputs, num_items_in_batch)

    return Recovering


def train(step, faults, micro_batches):
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, per_device_train_batch_size=training.ROWS, gradient_accumulation_steps=training.ACCUMULATION,
            num_train_epochs=1, max_grad_norm=0.5, learning_rate=1e-3, save_strategy="no", report_to=[],
            logging_steps=1, disable_tqdm=True, dataloader_pin_memory=False)
        trainer = trainer_class(step, faults)(training.new_model(), arguments, train_dataset=Rows(micro_batches))
        trainer.train()
        losses = [torch.tensor(entry["loss"]) for entry in trainer.state.log_history if "loss" in entry]
        return training.digest(trainer.model, losses)


if __name__ == "__main__":
    training.main(train)
