/* An input of text has levels in place of scaled values: for unknown texts, then for each; of numbers they are 2. */
static inline double gf_level(int f, double x, double scaled)
{
    int known = x >= 0.0 && x <= (double)(GF_LEVELS_WIDTH - 2) && floor(x) >= x;
    int first = f * GF_LEVELS_WIDTH, at = first + (known ? (int)x + 1 : 0);
    if (GF_LEVELS_WIDTH == 0 || gf_levels[first] > 1)
        return scaled;
    return gf_levels[at] > 1 ? gf_levels[first] : gf_levels[at];
}

static inline void gf_scale(const double *x, double *z)
{
    for (int f = 0; f < GF_INPUTS; f++) {
        double width = gf_high[f] - gf_low[f];
        double q = width > 0 ? (x[f] - gf_low[f]) / width : 0.0;
        z[f] = gf_level(f, x[f], q < 0.0 ? 0.0 : q > 1.0 ? 1.0 : q);
    }
}

static inline double gf_unscale(double value)
{
    return gf_target[0] + value * (gf_target[1] - gf_target[0]);
}
