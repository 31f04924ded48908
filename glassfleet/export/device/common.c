static inline void gf_scale(const double *x, double *z)
{
    for (int f = 0; f < GF_INPUTS; f++) {
        double width = gf_high[f] - gf_low[f];
        double q = width > 0 ? (x[f] - gf_low[f]) / width : 0.0;
        z[f] = q < 0.0 ? 0.0 : q > 1.0 ? 1.0 : q;
    }
}

static inline double gf_unscale(double value)
{
    return gf_target[0] + value * (gf_target[1] - gf_target[0]);
}
