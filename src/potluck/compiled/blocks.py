"""What the table of a convolutional network says of each convolution and the pooling behind it: sizes, and places."""

from __future__ import annotations

NAMES = (
    "CIN", "HEIGHT", "WIDTH", "COUT", "KY", "KX", "STRIDE_Y", "STRIDE_X", "PAD_Y", "PAD_X", "OUT_Y", "OUT_X", "ROW_X",
    "POOL_Y", "POOL_X", "POOLED_Y", "POOLED_X", "WEIGHT", "BIAS", "IMAGE", "IMAGE_SIZE", "WINNER", "NEXT", "NEXT_SIZE",
    "NEXT_PAD_Y", "NEXT_PAD_X", "NEXT_WIDTH", "SLACK",
    # the gradient: its form; the code of a winner a row or a column further on
    "FORM", "CODE_Y", "CODE_X",
    # weights as the gradient of the image needs them; where the gradient has lists, and the sums of the weights'
    "BACK", "SUMS",
    # of lists: numbers of a channel's window and of a row of it, vectors of a piece of that row, and its rows at once
    "SPAN", "ACROSS", "VECTORS", "AT_ONCE", "AT_ONCE_BACK",
    # entries by channel, and by place
    "BY_CHANNEL", "BY_PLACE",
)  # fmt: skip
(
    CIN, HEIGHT, WIDTH, COUT, KY, KX, STRIDE_Y, STRIDE_X, PAD_Y, PAD_X, OUT_Y, OUT_X, ROW_X,
    POOL_Y, POOL_X, POOLED_Y, POOLED_X, WEIGHT, BIAS, IMAGE, IMAGE_SIZE, WINNER, NEXT, NEXT_SIZE,
    NEXT_PAD_Y, NEXT_PAD_X, NEXT_WIDTH, SLACK,
    FORM, CODE_Y, CODE_X, BACK, SUMS, SPAN, ACROSS, VECTORS, AT_ONCE, AT_ONCE_BACK, BY_CHANNEL, BY_PLACE,
) = range(len(NAMES))  # fmt: skip
DENSE, LISTS, PICKS = 0, 1, 2  # forms of the gradient
