"""A plain loop: GPT-2 with dropout, accumulation and clipping, undisturbed and with a failure in each micro-batch."""
import torch

import training


def train(step, faults, micro_batches):
    model = training.new_model().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    @step
    def micro_batch(model, tokens):
        faults.begin()
        loss = model(input_ids=tokens, labels=tokens).loss / training.ACCUMULATION
        loss.backward()
        return loss.detach()

    losses = []
    for number, tokens in enumerate(training.batches(micro_batches), 1):
        losses.append(micro_batch(model, tokens.cuda()))
        faults.end()
        if number % training.ACCUMULATION == 0:
            losses.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5))
            optimizer.step()
            optimizer.zero_grad()
    return training.digest(model, losses)


if __name__ == "__main__":
    training.main(train)
