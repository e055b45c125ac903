/* `troupe completion bash`: a completion script made from the table of commands. What depends on a
 * server, the names of tables, the script asks `troupe replay ls --names` when it is needed. */
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "core/alloc.h"

static const char script_head[] =
    "# bash completion for troupe; load it with: source <(troupe completion bash)\n"
    "_troupe_words() {\n"
    "    case $1 in\n";

static const char script_tail[] =
    "    esac\n"
    "}\n"
    "\n"
    "_troupe() {\n"
    "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}\n"
    "    local path=troupe commands= options= valued= arguments= position=0 target= described= i "
    "word\n"
    "    _troupe_words \"$path\"\n"
    "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
    "        word=${COMP_WORDS[i]}\n"
    "        if [[ $word == -* || $word == '=' || ${COMP_WORDS[i - 1]} == '=' ||\n"
    "            \" $valued \" == *\" ${COMP_WORDS[i - 1]} \"* ]]; then\n"
    "            continue\n"
    "        elif [[ \" $commands \" == *\" $word \"* ]]; then\n"
    "            path=\"$path $word\"\n"
    "            _troupe_words \"$path\"\n"
    "        elif [[ ${COMP_WORDS[i - 1]} == ':' || $word == ':' ]]; then\n"
    "            target+=$word # an address, which bash splits\n"
    "        else\n"
    "            ((position == 0)) && target=$word\n"
    "            ((position++))\n"
    "            described+=\" $word\"\n"
    "        fi\n"
    "    done\n"
    "    if [[ $cur == '=' ]]; then cur=; elif [[ $prev == '=' ]]; then "
    "prev=${COMP_WORDS[COMP_CWORD - 2]}; fi\n"
    "    local choices\n"
    "    choices=$(_troupe_choices \"$path\" \"$prev\")\n"
    "    if [[ -n $choices ]]; then\n"
    "        COMPREPLY=($(compgen -W \"$choices\" -- \"$cur\"))\n"
    "    elif [[ $cur == -* ]]; then\n"
    "        COMPREPLY=($(compgen -W \"$options\" -- \"$cur\"))\n"
    "    elif [[ -n $commands ]]; then\n"
    "        COMPREPLY=($(compgen -W \"$commands\" -- \"$cur\"))\n"
    "    elif [[ \" $valued \" == *\" $prev \"* ]]; then\n"
    "        COMPREPLY=($(compgen -f -- \"$cur\"))\n"
    "    elif [[ -z $arguments ]]; then\n"
    "        COMPREPLY=($(compgen -W \"$options\" -- \"$cur\"))\n"
    "    else\n"
    "        local kinds=($arguments)\n"
    "        local kind=${kinds[position]:-${kinds[-1]}}\n"
    "        if [[ $kind == *TABLE* ]]; then\n"
    "            choices=$(troupe replay ls \"$target\" --names 2>/dev/null)\n"
    "        elif [[ $kind == *COMMAND* ]]; then\n"
    "            _troupe_words \"troupe$described\"\n"
    "            choices=$commands\n"
    "        elif [[ $kind != *[A-Z]* ]]; then\n"
    "            choices=$kind # the word itself\n"
    "        else\n"
    "            COMPREPLY=($(compgen -f -- \"$cur\"))\n"
    "            return\n"
    "        fi\n"
    "        COMPREPLY=($(compgen -W \"$choices\" -- \"$cur\"))\n"
    "    fi\n"
    "}\n"
    "complete -o filenames -F _troupe troupe\n";

static void options_words(const struct command *command)
{
    for (size_t i = 0; i < CLI_GROUPS_MAX && command->options[i]; ++i)
        for (const struct cli_option *row = command->options[i]; row->name; ++row)
            printf("--%s ", row->name);
    printf("--help");
}

/* Options that take the next word. */
static void valued_words(const struct command *command)
{
    for (size_t i = 0; i < CLI_GROUPS_MAX && command->options[i]; ++i) {
        for (const struct cli_option *row = command->options[i]; row->name; ++row) {
            if (row->kind != CLI_FLAG)
                printf("--%s ", row->name);
            if (row->kind != CLI_FLAG && row->letter)
                printf("-%c ", row->letter);
        }
    }
}

static void words_print(const struct command *command, const char *name)
{
    printf("    '%s')\n        commands='", name);
    for (const struct command *each = command->commands; each && each->name; ++each)
        printf("%s ", each->name);
    printf("' arguments='%s'\n        options='", command->arguments ? command->arguments : "");
    options_words(command);
    printf("'\n        valued='");
    valued_words(command);
    printf("' ;;\n");
    for (const struct command *each = command->commands; each && each->name; ++each) {
        char *longer = xasprintf("%s %s", name, each->name);
        words_print(each, longer);
        free(longer);
    }
}

/* What may follow an option, where that is a list of words. */
static void choices_print(const struct command *command, const char *name)
{
    for (size_t i = 0; i < CLI_GROUPS_MAX && command->options[i]; ++i) {
        for (const struct cli_option *row = command->options[i]; row->name; ++row) {
            if (!row->words)
                continue;
            printf("    '%s --%s'", name, row->name);
            if (row->letter)
                printf(" | '%s -%c'", name, row->letter);
            printf(") echo '%s' ;;\n", row->words);
        }
    }
    for (const struct command *each = command->commands; each && each->name; ++each) {
        char *longer = xasprintf("%s %s", name, each->name);
        choices_print(each, longer);
        free(longer);
    }
}

int completion_command(const struct cli_call *call)
{
    if (strcmp(call->words[0], "bash") != 0)
        return cli_wrong(call->name, "'%s': only bash is known", call->words[0]);
    fputs(script_head, stdout);
    words_print(&cli_root, cli_root.name);
    fputs("    esac\n}\n\n_troupe_choices() {\n    case \"$1 $2\" in\n", stdout);
    choices_print(&cli_root, cli_root.name);
    fputs(script_tail, stdout);
    return EXIT_DONE;
}
