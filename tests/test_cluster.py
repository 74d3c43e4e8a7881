"""The ledger of tests/cluster: each kind of fault is counted, and what is allowed is not."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "cluster"))

from ledger import Ledger, Subscriber  # noqa: E402


class Counted(unittest.TestCase):
    def setUp(self):
        self.ledger = Ledger([], 1)
        self.subscriber = Subscriber(self.ledger, 0)
        self.subscribed(epoch="a", offset=0)

    def subscribed(self, subscriber=None, **reply):
        (subscriber or self.subscriber).subscribed(reply)

    def publications(self, *places, subscriber=None):
        """Takes publications, each an offset and a number."""
        for offset, number in places:
            (subscriber or self.subscriber).publication({"offset": offset, "data": number})

    def counted(self):
        """The counts of faults that are not zero."""
        counts = self.ledger.counts
        kinds = ("lost", "doubled", "reordered", "reused", "told")
        return {kind: getattr(counts, kind) for kind in kinds if getattr(counts, kind)}

    def test_a_row_without_a_hole_is_no_fault(self):
        self.publications((1, 1), (2, 2))
        self.subscribed(epoch="a", offset=4, recovered=True, publications=[{"offset": 3, "data": 3}, {"offset": 4, "data": 4}])
        self.publications((5, 5))
        self.assertEqual(self.counted(), {})
        self.assertEqual((self.subscriber.epoch, self.subscriber.offset), ("a", 5))

    def test_a_hole_is_lost(self):
        self.publications((1, 1), (3, 3))
        self.assertEqual(self.counted(), {"lost": 1})

    def test_the_same_again_is_doubled(self):
        self.publications((1, 1), (2, 1))
        self.assertEqual(self.counted(), {"doubled": 1})

    def test_an_earlier_one_is_out_of_order(self):
        self.publications((1, 1), (2, 2), (3, 1))
        self.assertEqual(self.counted(), {"reordered": 1})

    def test_a_client_that_could_not_recover_may_miss_some_once(self):
        self.publications((1, 1))
        self.subscribed(epoch="b", offset=0, recovered=False)
        self.publications((1, 7), (2, 8))
        self.assertEqual(self.counted(), {"told": 1})
        self.publications((3, 10))
        self.assertEqual(self.counted(), {"told": 1, "lost": 1})

    def test_an_offset_stands_for_one_publication_in_an_epoch(self):
        other = Subscriber(self.ledger, 10)
        self.subscribed(other, epoch="a", offset=0)
        self.publications((1, 1))
        self.publications((1, 2), subscriber=other)
        self.assertEqual(self.counted(), {"reused": 1})


if __name__ == "__main__":
    unittest.main()
