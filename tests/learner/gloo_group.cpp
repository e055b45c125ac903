#include "gloo_group.h"

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <numeric>
#include <vector>

#include <gloo/allgatherv.h>
#include <gloo/allreduce.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

struct gloo_group {
    std::shared_ptr<gloo::rendezvous::Context> context;
    uint32_t rank, size, tag;
};

namespace
{

template <typename Run> void or_exit(Run run)
{
    try {
        run();
    } catch (const std::exception &error) {
        fprintf(stderr, "gloo: %s\n", error.what());
        exit(1);
    }
}

template <typename T> void allreduce(gloo_group *group, T *values, size_t count, gloo_op op)
{
    using reduction = void (*)(void *, const void *, const void *, size_t);
    gloo::AllreduceOptions options(group->context);
    options.setOutput(values, count);
    options.setReduceFunction(op == GLOO_SUM ? reduction(gloo::sum<T>) : reduction(gloo::max<T>));
    options.setTag(group->tag++);
    gloo::allreduce(options);
}

} // namespace

gloo_group *gloo_group_create(const char *dir, uint32_t rank, uint32_t size)
{
    gloo_group *group = new gloo_group{nullptr, rank, size, 0};
    or_exit([&] {
        gloo::transport::tcp::attr address;
        address.hostname = "127.0.0.1";
        std::shared_ptr<gloo::transport::Device> device =
            gloo::transport::tcp::CreateDevice(address);
        gloo::rendezvous::FileStore store(dir);
        group->context = std::make_shared<gloo::rendezvous::Context>(rank, size);
        group->context->connectFullMesh(store, device);
    });
    return group;
}

void gloo_group_destroy(gloo_group *group)
{
    delete group;
}

void gloo_allreduce(gloo_group *group, void *values, size_t count, gloo_type type, gloo_op op)
{
    or_exit([&] {
        if (type == GLOO_F32)
            allreduce(group, static_cast<float *>(values), count, op);
        else if (type == GLOO_I32)
            allreduce(group, static_cast<int32_t *>(values), count, op);
        else
            allreduce(group, static_cast<uint64_t *>(values), count, op);
    });
}

void gloo_broadcast(gloo_group *group, void *values, size_t count, gloo_type type, uint32_t root)
{
    or_exit([&] {
        gloo::BroadcastOptions options(group->context);
        options.setOutput(static_cast<uint8_t *>(values), count * (type == GLOO_U64 ? 8 : 4));
        options.setRoot(root);
        options.setTag(group->tag++);
        gloo::broadcast(options);
    });
}

void gloo_all_gather(gloo_group *group, void *values, const size_t *counts, gloo_type type)
{
    or_exit([&] {
        size_t bytes = type == GLOO_U64 ? 8 : 4, before = 0;
        std::vector<size_t> all;
        for (uint32_t rank = 0; rank < group->size; rank++) {
            all.push_back(counts[rank] * bytes);
            before += rank < group->rank ? all[rank] : 0;
        }
        uint8_t *out = static_cast<uint8_t *>(values);
        std::vector<uint8_t> mine(out + before, out + before + all[group->rank]);
        gloo::AllgathervOptions options(group->context);
        options.setInput(mine.data(), mine.size());
        options.setOutput(out, all);
        options.setTag(group->tag++);
        gloo::allgatherv(options);
    });
}

void gloo_reduce_scatter(gloo_group *group, float *values, const size_t *counts)
{
    or_exit([&] {
        std::vector<int> all(counts, counts + group->size);
        gloo::ReduceScatterHalvingDoubling<float> algorithm(
            group->context, {values}, std::accumulate(all.begin(), all.end(), 0), all);
        algorithm.run();
    });
}
