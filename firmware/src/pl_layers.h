/* Any small chain of layers: dense, 1-D convolution, max-pooling, GRU; forward, backward, SGD with momentum and a
   term that is affine in the weights, in memory the caller hands over. src/potluck/learn.py's `fit` is the same in PyTorch.

   A sample is x[T][I]. Convolutions give [channels][length]. A dense layer reads what is before it as it lies. A GRU reads
   a series [T][I] and gives its last state. The last layer's outputs are the logits of a softmax. */
#ifndef PL_LAYERS_H
#define PL_LAYERS_H

#include "pl_cfc.h"

PL_BEGIN

enum { PL_DENSE = 1, PL_CONV, PL_POOL, PL_GRU };
enum { PL_NONE, PL_RELU, PL_TANH };
enum { PL_MAX_LINKS = 8, PL_LINK_BYTES = 6, PL_MAX_VALUES = 60000 };

/* On the wire: kind, activation << 4 in one byte; kernel, stride, padding; outputs u16. */
typedef struct {
    uint8_t kind, act, kernel, stride, pad;
    uint16_t length, channels, length_out, channels_out; /* in and out; a dense layer has length 1 */
    uint32_t by_time, by_channel;                        /* distances of its inputs in memory */
    uint32_t w, b;                                       /* its weights and biases among all */
    uint8_t tensor;                                      /* the first of its tensors: weights, then biases */
    uint32_t at, n;                                      /* its outputs among all values, and their number */
} pl_link;

typedef struct {
    pl_link links[PL_MAX_LINKS];
    uint32_t depth, count, inputs; /* layers, weights, numbers of a sample */
    uint16_t classes;
    pl_real *weights, *gradient, *velocity, *pull; /* [count]; the last two only where asked for */
    int8_t *small, *rounded;                         /* int8 weights in place of `weights`; a layer's inputs, rounded */
    int16_t *patch;                                  /* those that one product needs */
    pl_real *scales, rounded_scale;                  /* of each tensor; of those inputs */
    uint32_t tensors;
    pl_real *values;                                 /* outputs of all layers, of one sample */
    pl_real *delta[2];                               /* adjoints of a layer's outputs, and of its inputs */
    pl_real *states, *gates;                         /* of a GRU: all states; twelve rows of work space */
    pl_real *patches, *adjoints;                     /* of convolutions: inputs of PL_SLOTS places, and one adjoint; adjoints of PL_SLOTS steps */
    size_t used;
    void (*pause)(void *);
    void *context;
} pl_chain;

/* What a chain is made of: `links` as on the wire, the sizes of a sample, what else it needs, its weights' format. */
typedef struct {
    const uint8_t *links;
    uint16_t steps, inputs, classes;
    uint8_t extras, weights; /* PL_FLOAT32 or PL_INT8 */
} pl_chain_shape;

size_t pl_chain_needed(const pl_chain_shape *shape);
pl_status pl_chain_init(pl_chain *net, const pl_chain_shape *shape, void *memory, size_t bytes);
void pl_chain_clear(pl_chain *net); /* the gradient, before the first sample of a mini-batch */
pl_real pl_chain_add(pl_chain *net, const pl_sample *sample, pl_real share); /* share * its loss, whose gradient is added */
void pl_chain_descend(pl_chain *net, const pl_recipe *recipe, uint64_t key); /* the key is for int8 weights */
uint32_t pl_chain_classify(pl_chain *net, const pl_sample *sample); /* logits in the last layer's values */
pl_real pl_chain_weight(const pl_chain *net, uint32_t i); /* as a number */
const pl_real *pl_chain_logits(const pl_chain *net);

PL_END

#endif
