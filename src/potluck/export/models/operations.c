/*** divide ***/
static void divide(const float *x, float *y, int n, float by) {
    for (int i = 0; i < n; i++) y[i] = x[i] / by;
}
/*** standardise ***/
/* (x - mean) * factor; every `inner` values belong to one channel. What is missing (NaN) becomes 0. */
static void standardise(const float *x, float *y, int n, int channels, int inner, const float *mean,
                        const float *factor) {
    for (int i = 0; i < n; i++) {
        int c = (i / inner) % channels;
        float v = (x[i] - mean[c]) * factor[c];
        y[i] = v == v ? v : 0.0f;
    }
}
/*** affine ***/
static void affine(const float *x, float *y, int channels, int inner, const float *scale, const float *shift) {
    for (int i = 0; i < channels * inner; i++) y[i] = x[i] * scale[i / inner] + shift[i / inner];
}
/*** group_norm ***/
static void group_norm(const float *x, float *y, int channels, int inner, int groups, float eps, const float *scale,
                       const float *shift) {
    int size = channels / groups * inner;
    for (int g = 0; g < groups; g++, x += size, y += size) {
        float mean = 0.0f, square = 0.0f;
        for (int i = 0; i < size; i++) mean += x[i];
        mean /= (float)size;
        for (int i = 0; i < size; i++) square += (x[i] - mean) * (x[i] - mean);
        float by = 1.0f / sqrtf(square / (float)size + eps);
        for (int i = 0; i < size; i++) {
            int c = g * (channels / groups) + i / inner;
            y[i] = (x[i] - mean) * by * scale[c] + shift[c];
        }
    }
}
/*** relu ***/
static void relu(const float *x, float *y, int n) {
    for (int i = 0; i < n; i++) y[i] = x[i] > 0.0f ? x[i] : 0.0f;
}
/*** leaky_relu ***/
static void leaky_relu(const float *x, float *y, int n) {
    for (int i = 0; i < n; i++) y[i] = x[i] > 0.0f ? x[i] : 0.01f * x[i];
}
/*** tanh_all ***/
static void tanh_all(const float *x, float *y, int n) {
    for (int i = 0; i < n; i++) y[i] = tanhf(x[i]);
}
/*** add ***/
static void add(const float *a, const float *b, float *y, int n) {
    for (int i = 0; i < n; i++) y[i] = a[i] + b[i];
}
/*** copy ***/
static void copy(const float *x, float *y, int n) {
    for (int i = 0; i < n; i++) y[i] = x[i];
}
/*** move_last ***/
/* (rows, channels) -> (channels, rows) */
static void move_last(const float *x, float *y, int rows, int channels) {
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < channels; c++) y[c * rows + r] = x[r * channels + c];
}
/*** linear ***/
static void linear(const float *x, float *y, int inputs, int outputs, const float *w, const float *b) {
    for (int o = 0; o < outputs; o++) {
        float sum = b[o];
        for (int i = 0; i < inputs; i++) sum += w[o * inputs + i] * x[i];
        y[o] = sum;
    }
}
/*** conv ***/
typedef struct {
    int channels, height, width, outputs, height_out, width_out, kernel[2], stride[2], padding[2], groups;
} conv_sizes;

static void conv(const float *x, float *y, const conv_sizes *s, const float *w, const float *b) {
    int own = s->channels / s->groups, per_group = s->outputs / s->groups;
    for (int o = 0; o < s->outputs; o++) {
        const float *from = x + o / per_group * own * s->height * s->width;
        for (int r = 0; r < s->height_out; r++)
            for (int c = 0; c < s->width_out; c++) {
                const float *k = w + o * own * s->kernel[0] * s->kernel[1];
                float sum = b[o];
                for (int i = 0; i < own; i++)
                    for (int p = 0; p < s->kernel[0]; p++)
                        for (int q = 0; q < s->kernel[1]; q++, k++) {
                            int at_r = r * s->stride[0] + p - s->padding[0];
                            int at_c = c * s->stride[1] + q - s->padding[1];
                            if (at_r >= 0 && at_r < s->height && at_c >= 0 && at_c < s->width)
                                sum += *k * from[(i * s->height + at_r) * s->width + at_c];
                        }
                *y++ = sum;
            }
    }
}
/*** pool ***/
static void pool(const float *x, float *y, int channels, int height, int width, int high, int wide) {
    for (int c = 0; c < channels; c++, x += height * width)
        for (int r = 0; r < height / high; r++)
            for (int q = 0; q < width / wide; q++) {
                float best = x[r * high * width + q * wide];
                for (int i = 0; i < high; i++)
                    for (int j = 0; j < wide; j++) {
                        float v = x[(r * high + i) * width + q * wide + j];
                        if (v > best) best = v;
                    }
                *y++ = best;
            }
}
/*** mean ***/
static void mean(const float *x, float *y, int channels, int inner) {
    for (int c = 0; c < channels; c++) {
        float sum = 0.0f;
        for (int i = 0; i < inner; i++) sum += x[c * inner + i];
        y[c] = sum / (float)inner;
    }
}
/*** softmax ***/
static void softmax(const float *x, float *y, int n) {
    float most = x[0], sum = 0.0f;
    for (int i = 1; i < n; i++) most = x[i] > most ? x[i] : most;
    for (int i = 0; i < n; i++) sum += y[i] = expf(x[i] - most);
    for (int i = 0; i < n; i++) y[i] /= sum;
}
/*** logistic ***/
static float logistic(float a) { return 1.0f / (1.0f + expf(-a)); }
/*** sigmoid ***/
static void sigmoid(const float *x, float *y, int n) {
    for (int i = 0; i < n; i++) y[i] = logistic(x[i]);
}
/*** apart ***/
static void apart(const float *a, const float *b, float *y, int n) {
    float sum = 0.0f;
    for (int i = 0; i < n; i++) sum += (a[i] - b[i]) * (a[i] - b[i]);
    y[0] = sum / (float)n;
}
/*** gru ***/
static void gru(const float *x, float *y, int steps, int inputs, int hidden, int back, const float *w, const float *u,
                const float *b, const float *c, float *work) {
    float *in = work, *at = work + 3 * hidden, *h = work + 6 * hidden;
    for (int i = 0; i < hidden; i++) h[i] = 0.0f;
    for (int k = 0; k < steps; k++) {
        int t = back ? steps - 1 - k : k;
        linear(x + t * inputs, in, inputs, 3 * hidden, w, b);
        linear(h, at, hidden, 3 * hidden, u, c);
        for (int i = 0; i < hidden; i++) {
            float r = logistic(in[i] + at[i]), z = logistic(in[hidden + i] + at[hidden + i]);
            float n = tanhf(in[2 * hidden + i] + r * at[2 * hidden + i]);
            h[i] = y[t * hidden + i] = n + z * (h[i] - n);
        }
    }
}
/*** lstm ***/
static void lstm(const float *x, float *y, int steps, int inputs, int hidden, int back, const float *w, const float *u,
                 const float *b, const float *c, float *work) {
    float *in = work, *at = work + 4 * hidden, *h = work + 8 * hidden, *cell = work + 9 * hidden;
    for (int i = 0; i < hidden; i++) h[i] = cell[i] = 0.0f;
    for (int k = 0; k < steps; k++) {
        int t = back ? steps - 1 - k : k;
        linear(x + t * inputs, in, inputs, 4 * hidden, w, b);
        linear(h, at, hidden, 4 * hidden, u, c);
        for (int i = 0; i < 4 * hidden; i++) in[i] += at[i];
        for (int i = 0; i < hidden; i++) {
            cell[i] = logistic(in[hidden + i]) * cell[i] + logistic(in[i]) * tanhf(in[2 * hidden + i]);
            h[i] = y[t * hidden + i] = logistic(in[3 * hidden + i]) * tanhf(cell[i]);
        }
    }
}
/*** rnn ***/
static void rnn(const float *x, float *y, int steps, int inputs, int hidden, int back, const float *w, const float *u,
                const float *b, const float *c, float *work) {
    float *in = work, *at = work + hidden, *h = work + 2 * hidden;
    for (int i = 0; i < hidden; i++) h[i] = 0.0f;
    for (int k = 0; k < steps; k++) {
        int t = back ? steps - 1 - k : k;
        linear(x + t * inputs, in, inputs, hidden, w, b);
        linear(h, at, hidden, hidden, u, c);
        for (int i = 0; i < hidden; i++) h[i] = y[t * hidden + i] = tanhf(in[i] + at[i]);
    }
}
/*** cfc ***/
/* The closed-form continuous-time cell, regular in time; y is the state after the last step. */
static void cfc(const float *x, float *y, int steps, int inputs, int hidden, int backbone, int joined, int direct,
                int silu, int gated, const float *const *w, float *work) {
    float *in = work, *q = in + inputs + hidden, *z = q + joined, *heads = z + backbone;
    for (int i = 0; i < hidden; i++) y[i] = 0.0f;
    for (int t = 0; t < steps; t++) {
        for (int i = 0; i < inputs; i++) in[i] = x[t * inputs + i];
        for (int i = 0; i < hidden; i++) in[inputs + i] = y[i];
        linear(in, z, inputs + hidden, backbone, w[0], w[1]);
        for (int i = 0; i < backbone; i++) z[i] = silu ? z[i] * logistic(z[i]) : tanhf(z[i]);
        linear(z, q, backbone, joined, w[2], w[3]);
        for (int i = 0; i < joined; i++) q[i] = silu ? q[i] * logistic(q[i]) : tanhf(q[i]);
        linear(q, heads, joined + (direct ? backbone : 0), 3 * hidden, w[4], w[5]); /* z follows q in memory */
        for (int i = 0; i < hidden; i++) {
            float s = logistic(-heads[i]), h = tanhf(heads[2 * hidden + i]);
            y[i] = s * tanhf(heads[hidden + i]) + (gated ? (1.0f - s) * h : h);
        }
    }
}
