static inline double gf_answer(const double *x, int *decided)
{
    double z[GF_INPUTS], position[GF_INPUTS], degree[2 * GF_SPLITS + 1];
    int inside[2 * GF_SPLITS + 1];
    gf_scale(x, z);
    for (int f = 0; f < GF_INPUTS; f++) {
        const double *knots = gf_knots[f];
        int lower = 0;
        while (lower + 2 < gf_knot_count[f] && z[f] >= knots[lower + 1])
            lower++;
        position[f] = (double)lower + (z[f] - knots[lower]) / (knots[lower + 1] - knots[lower]);
    }
    degree[0] = 1.0;
    inside[0] = 1;
    for (int i = 0; i < GF_SPLITS; i++) {
        int node = gf_splits[i][0];
        double low = (double)gf_splits[i][2] + 1.0 - position[gf_splits[i][1]];
        low = low < 0.0 ? 0.0 : low > 1.0 ? 1.0 : low;
        degree[2 * i + 1] = degree[node] * low;
        degree[2 * i + 2] = degree[node] * (1.0 - low);
        inside[2 * i + 1] = inside[node] && low >= 0.5;
        inside[2 * i + 2] = inside[node] && !(low >= 0.5);
    }
    int rule = 0;
    double total = 0.0;
    for (int i = 0; i < GF_RULES; i++) {
        int leaf = gf_leaves[i];
        if (GF_AVERAGED) {
            total = total + degree[leaf] * gf_polynomial(i, z);
            if (degree[leaf] > degree[gf_leaves[rule]])
                rule = i;
        } else if (inside[leaf]) {
            total = gf_polynomial(i, z);
            rule = i;
        }
    }
    *decided = rule;
    total = total < 0.0 ? 0.0 : total > 1.0 ? 1.0 : total;
    return gf_target_low + total * (gf_target_high - gf_target_low);
}
