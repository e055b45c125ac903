#include <troupe/policy.h>

#include <stdlib.h>

void trp_policy_destroy(trp_policy *policy)
{
    if (!policy)
        return;
    trp_columns_cleanup(&policy->extras);
    if (policy->impl->destroy)
        policy->impl->destroy(policy);
    else
        free(policy);
}
