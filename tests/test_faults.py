"""Tests of the ledger of tests/cluster.py."""

import unittest

from faults.ledger import Account, Ledger


class Accounts(unittest.TestCase):
    def setUp(self):
        self.ledger = Ledger()
        self.account = Account(self.ledger, "client", "news")
        self.account.begin("e", 0)

    def counts(self, *received, final=None):
        """Returns the counts (lost, doubled, out of order, offsets reused) after receiving these pairs of an offset and
        a number."""
        for offset, number in received:
            self.account.receive(offset, number)
        if final:
            self.ledger.acknowledged["news"] = final
            self.account.close()
        return (self.ledger.lost, self.ledger.doubled, self.ledger.reordered, self.ledger.reused)

    def test_one_after_the_other_is_right(self):
        self.assertEqual(self.counts((1, 1), (2, 2), (3, 3), final=3), (0, 0, 0, 0))
        self.assertTrue(self.account.is_complete())

    def test_a_hole_counts_each_publication(self):
        self.assertEqual(self.counts((1, 1), (4, 4)), (2, 0, 0, 0))

    def test_a_hole_at_the_end(self):
        self.assertEqual(self.counts((1, 1), final=4), (3, 0, 0, 0))
        self.assertFalse(self.account.is_complete())

    def test_a_hole_that_offsets_hide(self):
        self.assertEqual(self.counts((1, 1), (2, 3)), (1, 0, 0, 0))

    def test_a_double(self):
        self.assertEqual(self.counts((1, 1), (2, 2), (3, 2)), (0, 1, 0, 0))

    def test_an_earlier_number_that_was_not_received(self):
        self.assertEqual(self.counts((5, 5), (6, 4)), (0, 0, 2, 0))

    def test_an_offset_of_an_epoch_without_a_notice(self):
        self.assertEqual(self.counts((1, 1), (1, 2)), (0, 0, 1, 1))

    def test_an_offset_that_another_client_has_seen_otherwise(self):
        other = Account(self.ledger, "other", "news")
        other.begin("e", 0)
        other.receive(1, 7)
        self.assertEqual(self.counts((1, 1)), (0, 0, 0, 1))

    def test_after_a_notice_it_begins_again(self):
        self.counts((1, 1), (2, 2))
        self.account.begin("f", 4)
        self.assertEqual(self.counts((5, 9), (6, 10), final=10), (0, 0, 0, 0))


if __name__ == "__main__":
    unittest.main()
