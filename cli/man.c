/* `troupe man`: manual pages of every command, one page each, from the table of commands. They are
 * made when Troupe is built and installed with it, so that they say what this build does. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli.h"
#include "core/alloc.h"

/* Text as roff: a backslash, a hyphen and a quote at a line's start mean something there. */
static void roff_text(FILE *out, const char *text, size_t size)
{
    bool start = true;
    for (size_t i = 0; i < size; i++) {
        if (start && (text[i] == '.' || text[i] == '\''))
            fputs("\\&", out);
        start = false;
        if (text[i] == '\\')
            fputs("\\e", out);
        else if (text[i] == '-')
            fputs("\\-", out);
        else if (text[i] == '\'')
            fputs("\\(aq", out);
        else if (text[i] == '~')
            fputs("\\(ti", out);
        else if (text[i] == '^')
            fputs("\\(ha", out);
        else
            fputc(text[i], out);
    }
}

static void roff_line(FILE *out, const char *text)
{
    roff_text(out, text, strlen(text));
    fputc('\n', out);
}

/* What begins with a space is shown as it is. */
static void roff_paragraphs(FILE *out, const char *text)
{
    bool plain = false, fresh = true;
    while (text && *text) {
        size_t size = strcspn(text, "\n");
        bool kept = text[0] == ' ';
        if (kept != plain)
            fputs(kept ? ".PP\n.nf\n" : ".fi\n.PP\n", out);
        else if (!kept && !fresh)
            fputs(".PP\n", out);
        plain = kept;
        fresh = size == 0;
        if (size > 0) {
            roff_text(out, text, size);
            fputc('\n', out);
        }
        text += size + (text[size] == '\n');
    }
    if (plain)
        fputs(".fi\n", out);
}

static void roff_listing(FILE *out, const struct command *command)
{
    char *text = NULL;
    size_t size;
    FILE *listing = open_memstream(&text, &size);
    if (!listing)
        return;
    command->listing(listing);
    fclose(listing);
    fputs(".PP\n", out);
    roff_paragraphs(out, text);
    free(text);
}

static void option_page(FILE *out, const struct cli_option *option)
{
    fputs(".TP\n", out);
    if (option->letter)
        fprintf(out, "\\fB\\-%c\\fR, ", option->letter);
    fputs("\\fB\\-\\-", out);
    roff_text(out, option->name, strlen(option->name));
    fputs("\\fR", out);
    if (option->kind != CLI_FLAG)
        fprintf(out, "=\\fI%s\\fR", option->value);
    fputc('\n', out);
    roff_text(out, option->help, strlen(option->help));
    fputs(".\n", out);
    if (option->words) {
        fputs("One of: ", out);
        roff_text(out, option->words, strlen(option->words));
        fputs(".\n", out);
    }
    if (option->fallback) {
        fputs("Default: ", out);
        roff_text(out, option->fallback, strlen(option->fallback));
        fputs(".\n", out);
    }
}

/* "troupe replay ls" with hyphens: the name of its page. */
static char *page_name(const char *name)
{
    char *page = xstrdup(name);
    for (char *at = page; *at; at++)
        *at = *at == ' ' ? '-' : *at;
    return page;
}

static void commands_page(FILE *out, const struct command *command, const char *name)
{
    fputs(".SH COMMANDS\n", out);
    for (const struct command *each = command->commands; each->name; each++) {
        char *longer = xasprintf("%s %s", name, each->name);
        char *page = page_name(longer);
        fputs(".TP\n\\fB", out);
        roff_text(out, page, strlen(page));
        fputs("\\fR(1)\n", out);
        roff_line(out, each->summary);
        free(page);
        free(longer);
    }
}

static void leaf_page(FILE *out, const struct command *command)
{
    fputs(".SH DESCRIPTION\n", out);
    if (command->details)
        roff_paragraphs(out, command->details);
    else
        roff_line(out, command->summary);
    if (command->listing)
        roff_listing(out, command);
    if (help_of_arguments(command)) {
        fputs(".PP\n", out);
        roff_line(out, help_of_arguments(command));
    }
    fputs(".SH OPTIONS\n", out);
    for (size_t i = 0; i < CLI_GROUPS_MAX && command->options[i]; i++)
        for (const struct cli_option *row = command->options[i]; row->name; row++)
            option_page(out, row);
    fputs(".TP\n\\fB\\-h\\fR, \\fB\\-\\-help\\fR\nprints the usage.\n", out);
    fputs(".SH EXIT STATUS\n", out);
    for (int i = 0; i < EXIT_COUNT; i++) {
        fprintf(out, ".TP\n%d\n", i);
        roff_line(out, cli_exit_words[i]);
    }
}

static void page_print(FILE *out, const struct command *command, const char *name)
{
    char *page = page_name(name);
    char *usage = help_usage(command);
    fprintf(out, ".TH \"%s\" 1 \"\" \"troupe %s\" \"Troupe\"\n.SH NAME\n", page, trp_version());
    roff_text(out, page, strlen(page));
    fputs(" \\- ", out);
    roff_line(out, command->summary);
    fprintf(out, ".SH SYNOPSIS\n\\fB%s\\fR", name);
    roff_line(out, usage);
    if (command->commands)
        commands_page(out, command, name);
    else
        leaf_page(out, command);
    fputs(".SH SEE ALSO\n.BR troupe (1)\n", out);
    free(usage);
    free(page);
}

static trp_status pages_write(const char *dir, const struct command *command, const char *name)
{
    char *page = page_name(name), *path = xasprintf("%s/%s.1", dir, page);
    FILE *file = fopen(path, "we");
    trp_status status = TRP_OK;
    if (!file)
        status = trp_fail(TRP_INTERNAL, "%s: %s", path, strerror(errno));
    if (file) {
        page_print(file, command, name);
        bool broken = ferror(file) != 0;
        if (fclose(file) != 0 || broken)
            status = trp_fail(TRP_INTERNAL, "%s: cannot be written", path);
    }
    free(path);
    free(page);
    for (const struct command *each = command->commands; status == TRP_OK && each && each->name;
         each++) {
        char *longer = xasprintf("%s %s", name, each->name);
        status = pages_write(dir, each, longer);
        free(longer);
    }
    return status;
}

int man_command(const struct cli_call *call)
{
    const struct man_args *args = call->args;
    const struct command *command = &cli_root;
    char *name = xstrdup(cli_root.name);
    int exit_status = EXIT_DONE;
    for (size_t i = 0; i < call->word_count && command; i++) {
        const struct command *each = command->commands;
        while (each && each->name && strcmp(each->name, call->words[i]) != 0)
            each++;
        command = each && each->name ? each : NULL;
        char *longer = xasprintf("%s %s", name, call->words[i]);
        free(name);
        name = longer;
    }
    trp_status status = TRP_OK;
    if (!command)
        exit_status = cli_wrong(call->name, "there is no command '%s'", name);
    else if (!args->dir)
        args->roff ? page_print(stdout, command, name) : help_print(stdout, command, name);
    else if (mkdir(args->dir, 0777) != 0 && errno != EEXIST)
        status = trp_fail(TRP_INTERNAL, "%s: %s", args->dir, strerror(errno));
    else
        status = pages_write(args->dir, command, name);
    free(name);
    return status == TRP_OK ? exit_status : cli_failed(call->name, status);
}
