static inline double gf_answer(const double *x, int *decided)
{
    double z[GF_INPUTS], upper[GF_INPUTS], strength[GF_NODES], reached[GF_RULES];
    int lower[GF_INPUTS], node[GF_NODES], fired[GF_RULES];
    int begin = 0, end = 1, leaves = 0;
    gf_scale(x, z);
    gf_memberships(z, lower, upper);
    node[0] = 0;
    strength[0] = 1.0;
    while (begin < end) { /* one level of the tree: leaves first, then lower children, then upper ones */
        int next = end;
        for (int i = begin; i < end; i++) {
            if (gf_rule_of[node[i]] >= 0) {
                fired[leaves] = gf_rule_of[node[i]];
                reached[leaves++] = strength[i];
            }
        }
        for (int side = 0; side < 2; side++) {
            for (int i = begin; i < end; i++) {
                if (gf_rule_of[node[i]] >= 0)
                    continue;
                int f = gf_split[node[i]];
                int child = gf_child[node[i]][lower[f] + side];
                double s = strength[i] * (side ? upper[f] : 1.0 - upper[f]);
                if (child >= 0 && s > 0.0) {
                    node[next] = child;
                    strength[next++] = s;
                }
            }
        }
        begin = end;
        end = next;
    }
    int rule = GF_DEFAULT;
    double best = 0.0;
    for (int i = 0; i < leaves; i++) {
        double measure = GF_AVERAGED ? reached[i] : reached[i] / gf_mean_strength[fired[i]];
        if (measure > best || (measure == best && gf_rank[fired[i]] < gf_rank[rule])) {
            rule = fired[i];
            best = measure;
        }
    }
    *decided = rule;
    double output;
    if (!GF_AVERAGED || leaves == 0) {
        output = gf_polynomial(rule, z);
    } else {
        double total = 0.0, terms = 0.0;
        for (int i = 0; i < leaves; i++) {
            total = total + reached[i];
            terms = terms + reached[i] * gf_polynomial(fired[i], z);
        }
        output = terms / total;
    }
    return gf_target_low + output * (gf_target_high - gf_target_low);
}
