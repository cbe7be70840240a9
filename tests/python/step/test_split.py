"""spillway.step(split=...): a micro-batch that does not fit is done in pieces, whose sum is the whole one's."""
import unittest

import torch

from step_case import Case, FailingBackward, Net, batch, plain, setUpModule, shortage, tearDownModule
import spillway


class Split(Case):
    def gradients(self, function, *arguments, most, **options):
        """Gradients of `function`, undisturbed, and where no more than `most` rows fit; after another micro-batch."""
        def limited(model, rows, *others):
            if len(rows) > most:
                if late:
                    FailingBackward(model.layers[1].weight, 1)
                else:
                    raise shortage()
            return function(model, rows, *others)

        for late in (False, True):
            models = [Net(), Net()]
            for model in models:
                model.eval()  # without dropout and with fixed statistics a split is the same
                plain(model, batch(9))
            expected = function(models[0], *arguments)
            split = spillway.step(limited, attempts=1, **options)
            got = split(models[1], *arguments)
            torch.testing.assert_close(got, expected)
            for one, other in zip(models[0].parameters(), models[1].parameters()):
                torch.testing.assert_close(other.grad, one.grad, rtol=1e-5, atol=1e-7)
            self.assertLessEqual(split.recovery.rows, most)
        return split

    def test_gradients_are_those_of_the_mean_over_all_rows(self):
        for rows in (2, 3, 7):
            for most in (1, 2):
                with self.subTest(rows=rows, most=most):
                    if rows > most:
                        self.gradients(plain, batch(0, rows), most=most, split=True)

    def test_losses_that_are_sums_are_summed(self):
        def summed(model, rows):
            loss = (model(rows) ** 2).sum()
            loss.backward()
            return loss.detach()

        self.gradients(summed, batch(0, 7), most=2, split="sum")

    def test_a_mean_over_targets_is_weighted_by_their_number(self):
        def masked(model, rows, targets):
            kept = (model(rows) ** 2).mean(1)[targets > 0]
            loss = kept.mean()
            loss.backward()
            return {"loss": loss.detach(), "rows": model(rows).detach()}

        self.gradients(masked, batch(0, 5), torch.tensor([1, 1, 0, 1, 1]), most=2, split=True,
                       count=lambda model, rows, targets: int((targets > 0).sum()))

    def test_pieces_stay_small_until_they_are_told_otherwise(self):
        sizes = []

        @spillway.step(split=True, attempts=1)
        def micro_batch(model, rows, names):
            sizes.append((len(rows), len(names)))
            if len(rows) > 4:
                raise shortage()

        model = Net().eval()
        micro_batch(model, batch(0, 8), list("abcdefgh"))
        micro_batch(model, batch(0, 10), list("abcdefghij"))
        micro_batch.recovery.rows = None
        micro_batch(model, batch(0, 4), list("abcd"))
        self.assertEqual(sizes, [(8, 8), (4, 4), (4, 4), (3, 3), (3, 3), (4, 4), (4, 4)])

    def test_one_row_is_not_split(self):
        @spillway.step(split=True, attempts=1)
        def micro_batch(model, rows):
            raise shortage()

        with self.assertRaises(torch.OutOfMemoryError):
            micro_batch(Net(), batch(0, 4))
        self.assertEqual(micro_batch.recovery.rows, 1)

    def test_a_result_that_cannot_be_joined_is_told_at_the_first_call(self):
        with self.assertRaisesRegex(TypeError, "returned a str"):
            spillway.step(lambda model, rows: "done", split=True)(Net(), batch(0))


if __name__ == "__main__":
    unittest.main()
