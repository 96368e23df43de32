"""The learned state of many keys: names to numbers, labels to classes, arrays that learners change, and their bytes."""
