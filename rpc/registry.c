/* A caller holds a service object and has to know, within nanoseconds and from any thread, whether
 * a server's pool runs its blocking methods. Services are few and registered at start-up, so: a
 * fixed open-addressing table of atomic pointers that is probed without a lock. A removed entry
 * leaves a mark so that probing goes on past it. */
#include "registry.h"

#include <stdatomic.h>

#include "limits.h"

struct entry {
    _Atomic(const void *) key; /* the object, NULL or &removed */
    _Atomic(const struct rpc_service *) service;
};

static struct entry table[RPC_SERVICES_MAX];
static const char removed;

static size_t first_probe(const void *key)
{
    return (size_t)(((uintptr_t)key >> 4) * 0x9e3779b97f4a7c15U >> 32) % RPC_SERVICES_MAX;
}

static struct entry *find_entry(const void *key)
{
    size_t at = first_probe(key);
    for (size_t probes = 0; probes < RPC_SERVICES_MAX; probes++) {
        const void *found = atomic_load_explicit(&table[at].key, memory_order_acquire);
        if (found == key)
            return &table[at];
        if (!found)
            return NULL;
        at = (at + 1) % RPC_SERVICES_MAX;
    }
    return NULL;
}

const struct rpc_service *rpc_registry_find(const ProtobufCService *service)
{
    struct entry *entry = find_entry(service);
    return entry ? atomic_load_explicit(&entry->service, memory_order_acquire) : NULL;
}

trp_status rpc_registry_add(const struct rpc_service *service)
{
    const void *key = service->service;
    if (find_entry(key))
        return trp_fail(TRP_ALREADY_EXISTS, "service %s is in another server",
                        service->service->descriptor->name);
    size_t at = first_probe(key);
    for (size_t probes = 0; probes < RPC_SERVICES_MAX; probes++) {
        const void *found = atomic_load(&table[at].key);
        if ((!found || found == &removed) &&
            atomic_compare_exchange_strong(&table[at].key, &found, key)) {
            atomic_store_explicit(&table[at].service, service, memory_order_release);
            return TRP_OK;
        }
        at = (at + 1) % RPC_SERVICES_MAX;
    }
    return trp_fail(TRP_RESOURCE_EXHAUSTED, "more than %d services in one process",
                    RPC_SERVICES_MAX);
}

void rpc_registry_remove(const struct rpc_service *service)
{
    struct entry *entry = find_entry(service->service);
    if (!entry)
        return;
    atomic_store(&entry->service, NULL);
    atomic_store(&entry->key, &removed);
}
