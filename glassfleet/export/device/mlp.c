static inline gf_output gf_answer(const double *x, int *decided)
{
    double given[GF_WIDEST], total[GF_WIDEST];
    const double *w = gf_weights;
    gf_scale(x, given);
    for (int f = 0; f < GF_INPUTS; f++)
        given[f] = 2.0 * given[f] - 1.0;
    for (int layer = 0; layer < GF_LAYERS; layer++) {
        int above = gf_units[layer], below = gf_units[layer + 1];
        const double *bias = w + above * below;
        for (int j = 0; j < below; j++) {
            total[j] = bias[j];
            for (int i = 0; i < above; i++)
                total[j] = total[j] + given[i] * w[i * below + j];
        }
        for (int j = 0; j < below; j++)
            given[j] = layer < GF_LAYERS - 1 && total[j] < 0.0 ? 0.0 : total[j];
        w = bias + below;
    }
    *decided = 0;
    return gf_last(given);
}
