/* --help of a command, from its row in the table. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "core/buffer.h"
#include "core/words.h"

enum { OPTION_INDENT = 26 };

const char *help_of_arguments(const struct command *command)
{
    if (!command->arguments || !strstr(command->arguments, "TARGET"))
        return NULL;
    return "TARGET is a server's address (HOST:PORT, [V6]:PORT, unix:/PATH or the path of a "
           "socket), or the directory of a store: of a stopped server, of a live one (its address "
           "is then taken from there), or of a run, in which it is called replay.";
}

/* Paragraphs are parted by newlines; one that begins with a space is kept as it is. */
static void paragraphs(FILE *out, const char *text)
{
    char line[2048];
    while (text && *text) {
        size_t size = strcspn(text, "\n");
        snprintf(line, sizeof line, "%.*s", (int)size, text);
        if (line[0] == ' ' || line[0] == '\0')
            fprintf(out, "%s\n", line);
        else
            print_wrapped(out, 0, line);
        text += size + (text[size] == '\n');
    }
}

static void option_print(FILE *out, const struct cli_option *option)
{
    char head[128], words[1024];
    int size = snprintf(head, sizeof head, option->letter ? "  -%c, " : "      ", option->letter);
    size += snprintf(head + size, sizeof head - (size_t)size, "--%s%s%s", option->name,
                     option->kind == CLI_FLAG ? "" : "=", option->value ? option->value : "");
    snprintf(words, sizeof words, "%s%s%s%s%s", option->help, option->words ? ": " : "",
             option->words ? option->words : "", option->fallback ? " (default: " : "",
             option->fallback ? option->fallback : "");
    if (option->fallback)
        strncat(words, ")", sizeof words - strlen(words) - 1);
    fputs(head, out);
    if (size + 2 > OPTION_INDENT) {
        fputc('\n', out);
        print_wrapped(out, OPTION_INDENT, words);
        return;
    }
    char *at = words;
    size_t room = WRAPPED_COLUMNS - OPTION_INDENT, length = strlen(words), cut = length;
    if (length > room) {
        cut = room;
        while (cut > 0 && words[cut] != ' ')
            cut--;
    }
    fprintf(out, "%*s%.*s\n", OPTION_INDENT - size, "", (int)cut, at);
    if (cut < length)
        print_wrapped(out, OPTION_INDENT, at + cut + 1);
}

static void options_print(FILE *out, const struct command *command)
{
    fputs("\nOptions:\n", out);
    for (size_t i = 0; i < CLI_GROUPS_MAX && command->options[i]; i++)
        for (const struct cli_option *row = command->options[i]; row->name; row++)
            option_print(out, row);
    fputs("  -h, --help              this text\n", out);
}

static void commands_print(FILE *out, const struct command *command, const char *name)
{
    fputc('\n', out);
    for (const struct command *each = command->commands; each->name; each++)
        fprintf(out, "  %-13s %s\n", each->name, each->summary);
    fprintf(out, "\n%s COMMAND --help says more.\n", name);
}

char *help_usage(const struct command *command)
{
    const char *words = command->commands ? "COMMAND ..." : command->arguments;
    struct buffer usage = {0};
    char part[128];
    for (const struct cli_option *row = command->options[0]; row && row->name; row++) {
        if (!row->needed)
            continue;
        int size = snprintf(part, sizeof part, " --%s=%s", row->name, row->value);
        buffer_append(&usage, (trp_bytes){(const uint8_t *)part, (size_t)size});
    }
    int size = snprintf(part, sizeof part, "%s%s%s", words ? " " : "", words ? words : "",
                        command->options[0] ? " [OPTION...]" : "");
    buffer_append(&usage, (trp_bytes){(const uint8_t *)part, (size_t)size + 1});
    return (char *)usage.data;
}

void help_print(FILE *out, const struct command *command, const char *name)
{
    char *usage = help_usage(command);
    fprintf(out, "Usage: %s%s\n\n", name, usage);
    free(usage);
    char first[256];
    snprintf(first, sizeof first, "%c%s.", toupper((unsigned char)command->summary[0]),
             command->summary + 1);
    print_wrapped(out, 0, first);
    if (command->commands) {
        commands_print(out, command, name);
        return;
    }
    if (command->details) {
        fputc('\n', out);
        paragraphs(out, command->details);
    }
    if (command->listing) {
        fputc('\n', out);
        command->listing(out);
    }
    if (help_of_arguments(command)) {
        fputc('\n', out);
        print_wrapped(out, 0, help_of_arguments(command));
    }
    options_print(out, command);
    fputs("\nExit status:", out);
    for (int i = 0; i < EXIT_COUNT; i++)
        fprintf(out, "%s%d  %s\n", i ? "             " : " ", i, cli_exit_words[i]);
}
