static inline gf_output gf_answer(const double *x, int *decided)
{
    double given[GF_WIDEST], total[GF_WIDEST];
    const double *w = gf_parameters;
    gf_scale(x, given);
    for (int f = 0; f < GF_INPUTS; f++)
        given[f] = 2.0 * given[f] - 1.0;
    for (int layer = 0; layer + 1 < GF_UNITS_COUNT; layer++) {
        int above = gf_units[layer], below = gf_units[layer + 1];
        const double *bias = w + above * below;
        for (int j = 0; j < below; j++) {
            total[j] = bias[j];
            for (int i = 0; i < above; i++)
                total[j] = total[j] + given[i] * w[i * below + j];
        }
        for (int j = 0; j < below; j++)
            given[j] = layer + 2 < GF_UNITS_COUNT && total[j] < 0.0 ? 0.0 : total[j];
        w = bias + below;
    }
    *decided = 0;
    if (GF_CLASSES == 0)
        return (gf_output)gf_unscale(given[0]);
    int best = 0;
    for (int i = 1; i < GF_CLASSES; i++)
        if (given[i] > given[best])
            best = i;
    return (gf_output)best;
}
