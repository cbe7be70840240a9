"""Accelerate: a loop as its documentation shows, with accumulate() around the micro-batch that is redone."""
import torch
from accelerate import Accelerator

import training


def train(step, faults, micro_batches):
    accelerator = Accelerator(gradient_accumulation_steps=training.ACCUMULATION)
    model = training.new_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = torch.utils.data.DataLoader(training.batches(micro_batches), batch_size=None)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    @step
    def micro_batch(model, tokens):
        faults.begin()
        loss = model(input_ids=tokens, labels=tokens).loss
        accelerator.backward(loss)
        return loss.detach()

    losses = []
    for tokens in loader:
        with accelerator.accumulate(model):
            losses.append(micro_batch(model, tokens))
            faults.end()
            if accelerator.sync_gradients:
                losses.append(accelerator.clip_grad_norm_(model.parameters(), 0.5))
            optimizer.step()
            optimizer.zero_grad()
    return training.digest(model, losses)


if __name__ == "__main__":
    training.main(train)
