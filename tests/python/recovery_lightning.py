"""Lightning: with manual optimization the micro-batch that is redone is a method of the module; with automatic
optimization it is the closure that its optimizer_step gets."""
import sys

import lightning
import torch

import training


class Module(lightning.LightningModule):
    def __init__(self, faults):
        super().__init__()
        self.model, self.faults, self.losses = training.new_model(), faults, []

    def configure_optimizers(self):
        return torch.optim.AdamW(self.model.parameters(), lr=1e-3)

    def loss_of(self, tokens):
        self.faults.begin()
        return self.model(input_ids=tokens, labels=tokens).loss


def manual(step, faults):
    class Manual(Module):
        automatic_optimization = False

        @step
        def micro_batch(self, tokens):
            loss = self.loss_of(tokens) / training.ACCUMULATION
            self.manual_backward(loss)
            return loss.detach()

        def training_step(self, tokens, index):
            self.losses.append(self.micro_batch(tokens))
            self.faults.end()
            if (index + 1) % training.ACCUMULATION == 0:
                optimizer = self.optimizers()
                self.clip_gradients(optimizer, gradient_clip_val=0.5, gradient_clip_algorithm="norm")
                optimizer.step()
                optimizer.zero_grad()

    return Manual(faults), {}


def automatic(step, faults):
    class Automatic(Module):
        def training_step(self, tokens, index):
            loss = self.loss_of(tokens)
            self.losses[index:] = [loss.detach()]  # once, also where it is redone
            return loss

        @step
        def redone(self, optimizer_closure):
            return optimizer_closure()

        def optimizer_step(self, epoch, index, optimizer, optimizer_closure):
            def closure():
                loss = self.redone(optimizer_closure)
                self.faults.end()
                return loss

            super().optimizer_step(epoch, index, optimizer, closure)

    return Automatic(faults), {"gradient_clip_val": 0.5}


def train(kind, step, faults, micro_batches):
    module, options = kind(step, faults)
    trainer = lightning.Trainer(max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
                                enable_model_summary=False, **options)
    loader = torch.utils.data.DataLoader(training.batches(micro_batches), batch_size=None)
    trainer.fit(module, loader)
    return training.digest(module.model, module.losses)


if __name__ == "__main__":
    torch.set_num_threads(2)
    kind, count = {"manual": manual, "automatic": automatic}[sys.argv[1]], int(sys.argv[2])
    training.sweep(lambda step, faults: train(kind, step, faults, count), count)
