/*
 * The post-ops of a call: their list as text, and the tensors that they take, by which the table knows the call.
 *
 * Which tensor a post-op takes, and of which type, is the plan's (tconv_torch_layer). The package puts only such calls
 * into the table whose tensors the library reads as they lie; the key has all that this depends on.
 */
#include "torch_calls.h"

bool read_post(stable_value text, stable_value operands, layer_call *made)
{
    const char *characters = NULL;
    size_t length = 0, count = 0;
    if (torch.torch_string_length(string_of(text), &length) != 0 ||
        torch.torch_string_c_str(string_of(text), &characters) != 0 ||
        torch.torch_list_size(list_of(operands), &count) != 0 || count > TCONV_MAX_POST_OPS ||
        !append_text(characters, length, &made->key))
        return false;
    for (size_t i = 0; i < count; i++) {
        stable_value item = 0;
        tensor_key lies = {0};
        if (torch.torch_list_get_item(list_of(operands), i, &item) != 0 || !read_tensor(tensor_of(item), &lies) ||
            !append_tensor(&lies, &made->key))
            return false;
        made->operands[i] = tensor_of(item);
    }
    made->operand_count = count;
    return true;
}

void release_post(stable_value text, stable_value operands)
{
    size_t count = 0;
    if (torch.torch_list_size(list_of(operands), &count) != 0)
        count = 0;
    for (size_t i = 0; i < count; i++) {
        stable_value item = 0;
        if (torch.torch_list_get_item(list_of(operands), i, &item) == 0)
            delete_tensor(tensor_of(item));
    }
    torch.torch_delete_list(list_of(operands));
    torch.torch_delete_string(string_of(text));
}

stable_value bytes_of(stable_value text)
{
    const char *characters = NULL;
    size_t length = 0;
    torch_list *made = NULL;
    bool done = torch.torch_string_length(string_of(text), &length) == 0 &&
                torch.torch_string_c_str(string_of(text), &characters) == 0 &&
                torch.torch_new_list_reserve_size(length, &made) == 0;
    for (size_t i = 0; done && i < length; i++)
        done = torch.torch_list_push_back(made, (unsigned char)characters[i]) == 0;
    torch.torch_delete_string(string_of(text));
    torch.aoti_torch_check(done, __func__, __FILE__, __LINE__, "out of memory");
    return value_of(made);
}
