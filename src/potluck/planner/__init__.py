"""What a federation will cost and bring, before anything is trained on devices (`potluck plan`)."""
