#include "torch_table.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------------------------------------------------- the key */

bool read_tensor(torch_tensor *tensor, tensor_key *key)
{
    int32_t layout = 0;
    int64_t rank = 0, *sizes = NULL, *strides = NULL;
    if (torch.aoti_torch_get_layout(tensor, &layout) != 0 || layout != torch.aoti_torch_layout_strided() ||
        torch.aoti_torch_get_dim(tensor, &rank) != 0 || rank > TCONV_TORCH_AXES ||
        torch.aoti_torch_get_sizes(tensor, &sizes) != 0 || torch.aoti_torch_get_strides(tensor, &strides) != 0 ||
        torch.aoti_torch_get_dtype(tensor, &key->dtype) != 0 ||
        torch.aoti_torch_get_device_type(tensor, &key->device_type) != 0 ||
        torch.aoti_torch_get_device_index(tensor, &key->device_index) != 0)
        return false;
    key->rank = (int32_t)rank;
    for (int64_t axis = 0; axis < rank; axis++) {
        key->sizes[axis] = sizes[axis];
        key->strides[axis] = strides[axis];
    }
    return true;
}

bool read_spatial(int64_t rank, call_key *key)
{
    key->spatial = (int32_t)rank - 2;
    return key->spatial >= 1 && key->spatial <= TCONV_TORCH_SPATIAL;
}

bool read_list(stable_value value, int32_t spatial, int64_t numbers[TCONV_TORCH_SPATIAL])
{
    torch_list *list = list_of(value);
    size_t size = 0;
    if (torch.torch_list_size(list, &size) != 0 || (size != (size_t)spatial && size != 1))
        return false;
    for (size_t i = 0; i < (size_t)spatial; i++) {
        stable_value number = 0;
        if (torch.torch_list_get_item(list, size == 1 ? 0 : i, &number) != 0)
            return false;
        numbers[i] = (int64_t)number;
    }
    return true;
}

static bool append_word(int64_t word, call_key *key)
{
    if (key->post_words == POST_WORDS)
        return false;
    key->post[key->post_words++] = word;
    return true;
}

bool append_text(const char *text, size_t length, call_key *key)
{
    bool fits = append_word((int64_t)length, key);
    for (size_t done = 0; fits && done < length; done += sizeof(int64_t)) {
        const size_t rest = length - done;
        int64_t word = 0;
        memcpy(&word, text + done, rest < sizeof word ? rest : sizeof word);
        fits = append_word(word, key);
    }
    return fits;
}

bool append_tensor(const tensor_key *tensor, call_key *key)
{
    bool fits = append_word(tensor->rank | (int64_t)tensor->dtype << 32, key) &&
                append_word((int64_t)(uint32_t)tensor->device_index | (int64_t)tensor->device_type << 32, key);
    for (int64_t axis = 0; fits && axis < tensor->rank; axis++)
        fits = append_word(tensor->sizes[axis], key) && append_word(tensor->strides[axis], key);
    return fits;
}

/* Bytes of a key that count. The rest of the words of the post-ops is 0. */
static size_t size_of(const call_key *key)
{
    return offsetof(call_key, post) + (size_t)key->post_words * sizeof *key->post;
}

static size_t hash_key(const call_key *key)
{
    const uint64_t *words = (const uint64_t *)(const void *)key;
    uint64_t hash = 0;
    for (size_t i = 0; i < size_of(key) / sizeof *words; i++)
        hash = (hash ^ words[i]) * UINT64_C(0x9E3779B97F4A7C15);
    return (size_t)(hash >> 32);
}

/* -------------------------------------------------------------------------------------------------------- the table */

/* Calls: as many as the package's own cache keeps layers (tconv/_plan.py). */
#define CAPACITY 512
#define BUCKETS  1024

static struct table {
    pthread_mutex_t lock;
    entry *buckets[BUCKETS];
    entry *newest, *oldest;
    int count;
} table = {.lock = PTHREAD_MUTEX_INITIALIZER};

void tconv_torch_release(tconv_torch_plan *given)
{
    if (given != NULL && atomic_fetch_sub(&given->uses, 1) == 1) {
        given->is.destroy(given->is.plan);
        free(given);
    }
}

void release(entry *given)
{
    if (atomic_fetch_sub(&given->uses, 1) == 1) {
        for (int i = 0; i < 2; i++)
            tconv_torch_release(given->plans[i]);
        free(given);
    }
}

static void unlink_from_order(entry *given)
{
    *(given->newer != NULL ? &given->newer->older : &table.newest) = given->older;
    *(given->older != NULL ? &given->older->newer : &table.oldest) = given->newer;
}

static void link_as_newest(entry *given)
{
    given->newer = NULL;
    given->older = table.newest;
    *(table.newest != NULL ? &table.newest->newer : &table.oldest) = given;
    table.newest = given;
}

static entry **bucket_of(const call_key *key)
{
    return &table.buckets[hash_key(key) % BUCKETS];
}

static entry *find_in_bucket(const call_key *key)
{
    entry *found = *bucket_of(key);
    while (found != NULL && memcmp(&found->key, key, size_of(key)) != 0)
        found = found->next;
    return found;
}

/* Takes an entry out of the table; the caller releases it. */
static void take_out(entry *gone)
{
    for (entry **link = bucket_of(&gone->key); *link != NULL; link = &(*link)->next)
        if (*link == gone) {
            *link = gone->next;
            unlink_from_order(gone);
            table.count--;
            return;
        }
}

entry *find(const call_key *key)
{
    pthread_mutex_lock(&table.lock);
    entry *found = find_in_bucket(key);
    if (found != NULL) {
        atomic_fetch_add(&found->uses, 1);
        if (table.newest != found) {
            unlink_from_order(found);
            link_as_newest(found);
        }
    }
    pthread_mutex_unlock(&table.lock);
    return found;
}

/* Puts an entry into the table, in place of one with the same key or, where the table is full, of the one used longest
 * ago. */
static void put(entry *given)
{
    pthread_mutex_lock(&table.lock);
    entry *gone = find_in_bucket(&given->key);
    entry **bucket = bucket_of(&given->key);
    if (gone == NULL && table.count == CAPACITY)
        gone = table.oldest;
    if (gone != NULL)
        take_out(gone);
    given->next = *bucket;
    *bucket = given;
    link_as_newest(given);
    table.count++;
    pthread_mutex_unlock(&table.lock);
    if (gone != NULL)
        release(gone);
}

tconv_torch_plan *tconv_torch_own(const tconv_torch_layer *description)
{
    if (description->workspace_elements == 0 && description->workspace_size > SCRATCH_BYTES)
        return NULL; /* the package counts on more scratch memory than SCRATCH_BYTES */
    tconv_torch_plan *made = malloc(sizeof *made);
    if (made == NULL)
        return NULL;
    made->is = *description;
    atomic_init(&made->uses, 1);
    return made;
}

/* Whether plans are what the table may hold of a call: that of its layer, or those of gradients that are wanted. Of the
 * operators of one gradient that is all. */
static bool are_of(const call_key *key, tconv_torch_plan *const plans[2])
{
    if ((key->flags & IS_STEP) != 0)
        return plans[0] != NULL && plans[0]->is.step != NULL && plans[1] == NULL;
    if ((key->flags & (IS_BACKWARD | IS_GRADIENT_OPERATOR)) == 0)
        return plans[0] != NULL && plans[0]->is.op == TCONV_FORWARD && plans[0]->is.step == NULL && plans[1] == NULL &&
               (plans[0]->is.post_count != 0) == (key->post_words != 0);
    static const int32_t ops[2] = {TCONV_BACKWARD_DATA, TCONV_BACKWARD_WEIGHTS};
    const int64_t of_input = (int64_t)1 << WANTED_SHIFT, of_others = of_input << 1 | of_input << 2;
    for (int i = 0; i < 2; i++) {
        const bool is_wanted = (key->flags & (i == 0 ? of_input : of_others)) != 0;
        const bool may_miss = !is_wanted || (key->flags & IS_BACKWARD) != 0;
        if (plans[i] == NULL ? !may_miss : !is_wanted || plans[i]->is.op != ops[i])
            return false;
    }
    return true;
}

void tconv_torch_remember(tconv_torch_plan *first, tconv_torch_plan *second, const int64_t copy[TCONV_TORCH_AXES],
                          int64_t settings, int64_t threads)
{
    tconv_torch_plan *const plans[2] = {first, second};
    const thread_state *state = get_state();
    if (state == NULL || !state->has_call || !are_of(&state->key, plans))
        return;
    entry *made = malloc(sizeof *made);
    if (made == NULL)
        return;
    memset(made, 0, sizeof *made);
    made->key = state->key;
    made->key.flags = (made->key.flags & ~(int64_t)TCONV_TORCH_SETTINGS) | settings;
    made->key.threads = threads;
    if (copy != NULL)
        memcpy(made->copy, copy, sizeof made->copy);
    made->plans[0] = first;
    made->plans[1] = second;
    for (int i = 0; i < 2; i++)
        if (made->plans[i] != NULL)
            atomic_fetch_add(&made->plans[i]->uses, 1);
    atomic_init(&made->uses, 1);
    put(made);
}

void tconv_torch_forget(void)
{
    entry *gone;
    do {
        pthread_mutex_lock(&table.lock);
        gone = table.oldest;
        if (gone != NULL)
            take_out(gone);
        pthread_mutex_unlock(&table.lock);
        if (gone != NULL)
            release(gone);
    } while (gone != NULL);
}

/* Locks the table before a fork: another thread could hold the lock then, and would not exist in the child to release
 * it. */
static void lock_table(void)
{
    pthread_mutex_lock(&table.lock);
}

static void unlock_table(void)
{
    pthread_mutex_unlock(&table.lock);
}

/* ------------------------------------------------------------------------------------------------------- a thread's */

static pthread_key_t state_key;

int make_states(void)
{
    return pthread_key_create(&state_key, free) == 0 && pthread_atfork(lock_table, unlock_table, unlock_table) == 0
               ? 0
               : -1;
}

thread_state *get_state(void)
{
    return pthread_getspecific(state_key);
}

thread_state *make_state(void)
{
    thread_state *state = get_state();
    if (state != NULL)
        return state;
    state = aligned_alloc(64, (sizeof *state + 63) / 64 * 64);
    if (state == NULL)
        return NULL;
    memset(state, 0, sizeof *state);
    if (pthread_setspecific(state_key, state) != 0) {
        free(state);
        return NULL;
    }
    return state;
}
