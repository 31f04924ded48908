/* An input of text has levels in place of scaled values: for unknown texts, then for each; of numbers they are 2. */
static inline double gf_level(int f, double x, double scaled)
{
    int known = x >= 0.0 && x <= (double)(GF_LEVELS_WIDTH - 2) && floor(x) >= x;
    int first = f * GF_LEVELS_WIDTH, at = first + (known ? (int)x + 1 : 0);
    if (GF_LEVELS_WIDTH == 0 || gf_levels[first] > 1)
        return scaled;
    return gf_levels[at] > 1 ? gf_levels[first] : gf_levels[at];
}

static inline double gf_scaled(int f, double x)
{
    double width = gf_high[f] - gf_low[f];
    double q = width > 0 ? (x - gf_low[f]) / width : 0.0;
    return gf_level(f, x, q < 0.0 ? 0.0 : q > 1.0 ? 1.0 : q);
}

/* An empty cell (NAN) is taken for a number of the model's; behind the inputs stands what says that cells are empty. */
static inline void gf_scale(const double *x, double *z)
{
    for (int f = 0; f < GF_INPUTS; f++)
        z[f] = gf_scaled(f, x[f]);
    for (int g = 0; g < GF_GAPS_COUNT; g++) {
        int empty = isnan(x[gf_gaps[g]]) ? 1 : 0;
        if (empty)
            z[gf_gaps[g]] = gf_scaled(gf_gaps[g], gf_taken_for[g]);
        z[GF_INPUTS + g] = empty;
    }
    for (int e = 0; e < GF_EXCESS_COUNT; e++) { /* then how far values are beyond limits: input, side, limit, most */
        int f = (int)gf_excess[4 * e];
        double limit = gf_excess[4 * e + 2], value = isnan(x[f]) ? limit : x[f];
        double far = (gf_excess[4 * e + 1] > 0 ? value - limit : limit - value) / gf_excess[4 * e + 3];
        far = far > 0.0 ? far : 0.0;
        z[GF_INPUTS + GF_GAPS_COUNT + e] = far > gf_farthest[0] ? gf_farthest[0] : far;
    }
}

/* Whether there is an answer: the value is finite, or its cell may be empty. */
static inline int gf_usable(int f, double x)
{
    int usable = isfinite(x) ? 1 : 0;
    for (int g = 0; g < GF_GAPS_COUNT; g++)
        usable = usable || (gf_gaps[g] == f && isnan(x));
    return usable;
}

static inline double gf_unscale(double value)
{
    return gf_target[0] + value * (gf_target[1] - gf_target[0]);
}
