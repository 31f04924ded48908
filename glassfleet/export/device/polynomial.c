static inline double gf_polynomial(int rule, const double *z)
{
    double total = gf_constants[rule];
    for (int f = 0; f < GF_SLOPES_WIDTH - GF_EXCESS_COUNT; f++)
        total = total + gf_slopes[rule * GF_SLOPES_WIDTH + f] * z[f];
    return total;
}

/* What is beyond limits comes last. */
static inline double gf_beyond(int rule, const double *z)
{
    double total = 0.0;
    for (int f = GF_SLOPES_WIDTH - GF_EXCESS_COUNT; f < GF_SLOPES_WIDTH; f++)
        total = total + gf_slopes[rule * GF_SLOPES_WIDTH + f] * z[f];
    return total;
}

static inline double gf_linked(double output, double excess)
{
    if (GF_CLIPPED)
        output = output < 0.0 ? 0.0 : output > 1.0 ? 1.0 : output;
    return gf_unscale(output + excess);
}
