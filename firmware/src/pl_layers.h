/* Any small chain of layers: dense, 1-D convolution, max-pooling, GRU; forward, backward, SGD with momentum and a
   proximal term, in memory the caller hands over. src/potluck/learn.py's `fit` is the same in PyTorch.

   A sample is x[T][I]. Convolutions give [channels][length]. A dense layer reads what is before it as it lies. A GRU reads
   a series [T][I] and gives its last state. The last layer's outputs are the logits of a softmax. */
#ifndef PL_LAYERS_H
#define PL_LAYERS_H

#include "pl_cfc.h"

PL_BEGIN

enum { PL_DENSE = 1, PL_CONV, PL_POOL, PL_GRU };
enum { PL_NONE, PL_RELU, PL_TANH };
enum { PL_MAX_LINKS = 8, PL_LINK_BYTES = 6, PL_MAX_VALUES = 60000 };
enum { PL_VELOCITY = 1, PL_ANCHOR = 2 }; /* what a recipe needs beside the gradient */

/* On the wire: kind, activation << 4 in one byte; kernel, stride, padding; outputs u16. */
typedef struct {
    uint8_t kind, act, kernel, stride, pad;
    uint16_t length, channels, length_out, channels_out; /* in and out; a dense layer has length 1 */
    uint32_t by_time, by_channel;                        /* distances of its inputs in memory */
    uint32_t w, b;                                       /* its weights and biases among all */
    uint32_t at, n;                                      /* its outputs among all values, and their number */
} pl_link;

typedef struct {
    pl_link links[PL_MAX_LINKS];
    uint32_t depth, count, inputs; /* layers, weights, numbers of a sample */
    uint16_t classes;
    pl_real *weights, *gradient, *velocity, *anchor; /* [count]; the last two only where asked for */
    pl_real *values;                                 /* outputs of all layers, of one sample */
    pl_real *delta[2];                               /* adjoints of a layer's outputs, and of its inputs */
    pl_real *states, *gates;                         /* of a GRU: all states; six rows of work space */
    size_t used;
    void (*pause)(void *);
    void *context;
} pl_chain;

typedef struct {
    pl_real lr, momentum, mu, clip;
    uint32_t first, last; /* the weights that may move */
} pl_recipe;

size_t pl_chain_needed(const uint8_t *links, uint16_t steps, uint16_t inputs, uint16_t classes, uint8_t extras);
pl_status pl_chain_init(pl_chain *net, const uint8_t *links, uint16_t steps, uint16_t inputs, uint16_t classes,
                        uint8_t extras, void *memory, size_t bytes);
pl_real pl_chain_gradient(pl_chain *net, const pl_batch *batch); /* the mean loss; its gradient in net->gradient */
void pl_chain_descend(pl_chain *net, const pl_recipe *recipe);
uint32_t pl_chain_classify(pl_chain *net, const pl_sample *sample); /* logits in the last layer's values */
const pl_real *pl_chain_logits(const pl_chain *net);

PL_END

#endif
