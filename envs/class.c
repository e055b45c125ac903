/* Names with arguments. What a name stands for is made once and kept, so that a spec is as constant
 * as one that was registered, whoever holds it. It is made without the mutex: an environment around
 * an environment looks the inner one up while it is configured. */
#include "class.h"

#include <stdlib.h>
#include <string.h>

#include "builtin.h"
#include "core/alloc.h"
#include "core/buffer.h"
#include "core/option_table.h"
#include "core/thread.h"
#include "core/words.h"
#include "limits.h"
#include "wrapper.h"

static struct mutex mutex = {PTHREAD_MUTEX_INITIALIZER}; /* all that follows */
static struct env_class *classes[ENV_NAMES_MAX];
static size_t class_count;

void env_class_destroy(struct env_class *class)
{
    if (!class)
        return;
    if (class->arguments)
        trp_options_cleanup(class->impl.options, class->arguments);
    env_class_destroy(class->inner);
    free(class->arguments);
    free(class->name);
    free(class);
}

/* KEY=VALUE, in the order of the name. */
struct pair {
    const char *key, *value;
};

/* Cuts `text`, KEY=VALUE&KEY=VALUE, to `count` pieces. */
static trp_status cut_pairs(char *text, struct pair pairs[ENV_KEYS_MAX], size_t *count)
{
    for (*count = 0; text; ++*count) {
        char *key = text, *value = strchr(key, '=');
        if (*count == ENV_KEYS_MAX)
            return trp_fail(TRP_INVALID_ARGUMENT, "more than %d keys", ENV_KEYS_MAX);
        text = strchr(key, '&');
        if (text)
            *text++ = '\0';
        if (!value || (text && value >= text))
            return trp_fail(TRP_INVALID_ARGUMENT, "'%s' is no KEY=VALUE", key);
        *value++ = '\0';
        pairs[*count] = (struct pair){key, value};
    }
    return TRP_OK;
}

static trp_status unknown_key(const struct env_class *class, const char *key)
{
    const trp_option_table *table = class->impl.options;
    size_t own = table ? table->count : 0, count = own;
    while (wrapper_key_at(count - own))
        count++;
    const char **names = xcalloc(count + 1, sizeof *names);
    for (size_t i = 0; i < count; i++)
        names[i] = i < own ? table->options[i].name : wrapper_key_at(i - own);
    char guess[GUESS_BYTES];
    word_guess(key, names, guess);
    struct buffer all = {0};
    for (size_t i = 0; i < count; i++) {
        buffer_append(&all, text_bytes(" "));
        buffer_append(&all, text_bytes(names[i]));
    }
    free(names);
    trp_status status =
        trp_fail(TRP_INVALID_ARGUMENT, "no argument and no wrapper is '%s'%s%s there are:%.*s", key,
                 guess, *guess ? "" : ";", (int)all.size, (const char *)all.data);
    buffer_cleanup(&all);
    return status;
}

/* The environment itself, with those of the pairs that are its arguments. */
static trp_status class_configure(struct env_class *class, const struct pair *pairs, size_t count)
{
    trp_env_impl *impl = &class->impl;
    if (impl->options) {
        class->arguments = xcalloc(1, impl->options->bytes);
        trp_options_resolve(impl->options, NULL, class->arguments);
    }
    for (size_t i = 0; i < count; i++) {
        if (wrapper_find(pairs[i].key))
            continue;
        if (!impl->options || !option_find(impl->options, pairs[i].key))
            return unknown_key(class, pairs[i].key);
        TRP_TRY(trp_options_set(impl->options, class->arguments, pairs[i].key, pairs[i].value));
    }
    return impl->configure ? impl->configure(class->arguments, impl->user, &impl->spec) : TRP_OK;
}

static trp_status class_check(struct env_class *class)
{
    const char *fault = env_spec_fault(&class->impl.spec);
    if (fault)
        return trp_fail(TRP_INVALID_ARGUMENT, "%s", fault);
    size_t tensors = trp_env_observation_count(&class->impl.spec), bytes = 0;
    for (size_t i = 0; i < tensors && bytes <= ENV_OBSERVATION_BYTES_MAX; i++)
        bytes += trp_tensor_bytes(&class->impl.spec.observations[i]);
    if (bytes > ENV_OBSERVATION_BYTES_MAX)
        return trp_fail(TRP_INVALID_ARGUMENT, "an observation has %zu bytes, at most %d", bytes,
                        ENV_OBSERVATION_BYTES_MAX);
    class->impl.spec.name = class->name;
    if (!class->impl.spec.masked)
        class->impl.mask = NULL;
    return TRP_OK;
}

/* `*class` is the outermost so far, also on failure. */
static trp_status class_build(struct env_class **class, char *arguments)
{
    struct pair pairs[ENV_KEYS_MAX];
    size_t count;
    TRP_TRY(cut_pairs(arguments, pairs, &count));
    TRP_TRY(class_configure(*class, pairs, count));
    TRP_TRY(class_check(*class));
    for (size_t i = 0; i < count; i++) {
        const trp_env_impl *wrapper = wrapper_find(pairs[i].key);
        if (!wrapper)
            continue;
        TRP_TRY(wrapper_create(wrapper, pairs[i].value, *class, class));
        if (class_check(*class) != TRP_OK)
            return trp_fail(TRP_INVALID_ARGUMENT, "%s=%s: %s", pairs[i].key, pairs[i].value,
                            trp_last_error());
    }
    return TRP_OK;
}

static trp_status class_create(const char *name, struct env_class **out)
{
    if (strlen(name) > ENV_NAME_BYTES_MAX)
        return trp_fail(TRP_INVALID_ARGUMENT, "environment '%.100s...': more than %d bytes", name,
                        ENV_NAME_BYTES_MAX);
    char *words = xstrdup(name), *arguments = strchr(words, '?');
    if (arguments)
        *arguments++ = '\0';
    struct env_class *class = NULL;
    const trp_env_impl *impl;
    trp_status status = env_impl_find(words, &impl);
    if (status == TRP_OK) {
        class = xcalloc(1, sizeof *class);
        class->name = xstrdup(name);
        class->impl = *impl;
        class->impl.spec.masked = impl->mask != NULL;
        status = class_build(&class, arguments);
        if (status != TRP_OK)
            status = trp_fail(status, "environment '%s': %s", name, trp_last_error());
    }
    free(words);
    if (status == TRP_OK)
        *out = class;
    else
        env_class_destroy(class);
    return status;
}

static struct env_class *class_known(const char *name)
{
    struct env_class *class = NULL;
    mutex_lock(&mutex);
    for (size_t i = 0; i < class_count && !class; i++)
        class = strcmp(classes[i]->name, name) == 0 ? classes[i] : NULL;
    mutex_unlock(&mutex);
    return class;
}

/* False: there are too many. Another thread's of the same name may stand before it: both say the
 * same. */
static bool class_keep(struct env_class *class)
{
    mutex_lock(&mutex);
    bool fits = class_count < ENV_NAMES_MAX;
    if (fits)
        classes[class_count++] = class;
    mutex_unlock(&mutex);
    return fits;
}

trp_status env_class_find(const char *name, const struct env_class **out)
{
    struct env_class *class = class_known(name);
    *out = class;
    if (class)
        return TRP_OK;
    TRP_TRY(class_create(name, &class));
    if (!class_keep(class)) {
        env_class_destroy(class);
        return trp_fail(TRP_RESOURCE_EXHAUSTED,
                        "environment '%s': this process has used %d names already", name,
                        ENV_NAMES_MAX);
    }
    *out = class;
    return TRP_OK;
}

trp_status trp_env_find(const char *name, const trp_env_spec **spec)
{
    const struct env_class *class;
    TRP_TRY(env_class_find(name, &class));
    *spec = &class->impl.spec;
    return TRP_OK;
}

trp_status trp_env_find_statistics(const char *name, size_t *count)
{
    const struct env_class *class;
    TRP_TRY(env_class_find(name, &class));
    *count = class->statistics;
    return TRP_OK;
}

/* ---- states ------------------------------------------------------------------------------- */

size_t env_class_saved_bytes(const struct env_class *class)
{
    const trp_env_impl *impl = &class->impl;
    if (impl->save)
        return impl->saved_bytes;
    return impl->create ? 0 : impl->state_bytes;
}

void env_class_save(const struct env_class *class, const void *state, void *saved)
{
    if (class->impl.save)
        class->impl.save(state, saved);
    else
        memcpy(saved, state, class->impl.state_bytes);
}

trp_status env_class_load(const struct env_class *class, void *state, const void *saved)
{
    if (class->impl.load)
        return class->impl.load(state, saved);
    memcpy(state, saved, class->impl.state_bytes);
    return TRP_OK;
}
