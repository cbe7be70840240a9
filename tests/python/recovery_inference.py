"""A call within torch.inference_mode() runs out of a card's memory, and is redone. Prints how often, and its result."""
import torch

import spillway


def main():
    model, failing = torch.nn.Linear(4, 4).cuda(), [1]
    rows = torch.ones(2, 4, device="cuda")

    @spillway.step
    def predict(model, rows):
        if failing:
            failing.pop()
            torch.empty(1 << 40, dtype=torch.uint8, device="cuda")
        return model(rows)

    with torch.inference_mode():
        got = predict(model, rows)
        equal = torch.equal(got, model(rows))
    print("redone", predict.recovery.redone, "equal", equal, "inference", got.is_inference())


if __name__ == "__main__":
    main()
