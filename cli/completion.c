/* `troupe completion bash|zsh|fish`: a completion script made from the table of commands. What
 * depends on a server, the names of tables, the script asks `troupe replay ls --names` when it is
 * needed. zsh runs the script for bash. */
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
    "        [[ $choices == latest ]] && COMPREPLY+=($(compgen -d -- \"$cur\"))\n"
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
    "            COMPREPLY=() # compgen -W would run what a name says\n"
    "            cur=${cur#[\\\"\\']} cur=${cur//\\\\/}\n"
    "            while IFS= read -r word; do\n"
    "                [[ $word == \"$cur\"* ]] && COMPREPLY+=(\"$word\")\n"
    "            done < <(troupe replay ls \"$target\" --names 2>/dev/null)\n"
    "            return\n"
    "        elif [[ $kind == *COMMAND* ]]; then\n"
    "            _troupe_words \"troupe$described\"\n"
    "            choices=$commands\n"
    "        elif [[ $kind == CHECKPOINT ]]; then\n"
    "            COMPREPLY=($(compgen -W latest -- \"$cur\") $(compgen -d -- \"$cur\"))\n"
    "            return\n"
    "        elif [[ $kind != *[A-Z]* ]]; then\n"
    "            choices=${kind//|/ } # the words themselves\n"
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
    for (size_t i = 0; i < CLI_GROUPS_MAX && command->options[i]; i++)
        for (const struct cli_option *row = command->options[i]; row->name; row++)
            printf("--%s ", row->name);
    printf("--help");
}

/* Options that take the next word. */
static void valued_words(const struct command *command)
{
    for (size_t i = 0; i < CLI_GROUPS_MAX && command->options[i]; i++) {
        for (const struct cli_option *row = command->options[i]; row->name; row++) {
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
    for (const struct command *each = command->commands; each && each->name; each++)
        printf("%s ", each->name);
    printf("' arguments='%s'\n        options='", command->arguments ? command->arguments : "");
    options_words(command);
    printf("'\n        valued='");
    valued_words(command);
    printf("' ;;\n");
    for (const struct command *each = command->commands; each && each->name; each++) {
        char *longer = xasprintf("%s %s", name, each->name);
        words_print(each, longer);
        free(longer);
    }
}

/* The words that may follow an option; NULL: others than words. The newest checkpoint has one. */
static const char *row_words(const struct cli_option *row)
{
    bool checkpoint = row->value && strcmp(row->value, "CHECKPOINT") == 0;
    return checkpoint ? "latest" : row->words;
}

/* What may follow an option, where that is a list of words. */
static void choices_print(const struct command *command, const char *name)
{
    for (size_t i = 0; i < CLI_GROUPS_MAX && command->options[i]; i++) {
        for (const struct cli_option *row = command->options[i]; row->name; row++) {
            const char *words = row_words(row);
            if (!words)
                continue;
            printf("    '%s --%s'", name, row->name);
            if (row->letter)
                printf(" | '%s -%c'", name, row->letter);
            printf(") echo '%s' ;;\n", words);
        }
    }
    for (const struct command *each = command->commands; each && each->name; each++) {
        char *longer = xasprintf("%s %s", name, each->name);
        choices_print(each, longer);
        free(longer);
    }
}

static void bash_print(void)
{
    fputs(script_head, stdout);
    words_print(&cli_root, cli_root.name);
    fputs("    esac\n}\n\n_troupe_choices() {\n    case \"$1 $2\" in\n", stdout);
    choices_print(&cli_root, cli_root.name);
    fputs(script_tail, stdout);
}

/* ---- fish -------------------------------------------------------------------------------- */

static const char fish_head[] =
    "# fish completion for troupe; load it with: troupe completion fish | source\n"
    "function __troupe_words\n"
    "    for word in (commandline -opc)[2..]\n"
    "        string match -q -- '-*' $word; or echo $word\n"
    "    end\n"
    "end\n"
    "function __troupe_at\n"
    "    set -l words (__troupe_words)\n"
    "    set -l depth (count $argv)\n"
    "    test \"$argv\" = \"$words[1..$depth]\"\n"
    "end\n"
    "function __troupe_next\n"
    "    set -l words (__troupe_words)\n"
    "    test \"$argv\" = \"$words\"\n"
    "end\n"
    "function __troupe_tables\n"
    "    set -l words (__troupe_words)\n"
    "    test (count $words) = 3; and troupe replay ls $words[3] --names 2>/dev/null\n"
    "end\n"
    "complete -c troupe -n '__troupe_next' -f\n"
    "complete -c troupe -n '__troupe_at replay' -a '(__troupe_tables)'\n";

/* In single quotes. */
static void fish_quote(const char *text)
{
    putchar('\'');
    for (; *text; text++) {
        if (*text == '\'' || *text == '\\')
            putchar('\\');
        putchar(*text);
    }
    putchar('\'');
}

static void fish_option(const struct cli_option *row, const char *path)
{
    printf("complete -c troupe -n '__troupe_at%s' -l %s", path, row->name);
    if (row->letter)
        printf(" -s %c", row->letter);
    if (row->kind != CLI_FLAG)
        fputs(row->kind == CLI_CHOICE ? " -x" : " -r", stdout);
    if (row_words(row)) {
        fputs(" -a ", stdout);
        fish_quote(row_words(row));
    }
    fputs(" -d ", stdout);
    fish_quote(row->help);
    putchar('\n');
}

static void fish_print(const struct command *command, const char *path)
{
    for (size_t i = 0; i < CLI_GROUPS_MAX && command->options[i]; i++)
        for (const struct cli_option *row = command->options[i]; row->name; row++)
            fish_option(row, path);
    if (command->arguments && strncmp(command->arguments, "CHECKPOINT", 10) == 0)
        printf("complete -c troupe -n '__troupe_next%s' -a latest\n", path);
    for (const struct command *each = command->commands; each && each->name; each++) {
        printf("complete -c troupe -n '__troupe_next%s' -f -a %s -d ", path, each->name);
        fish_quote(each->summary);
        putchar('\n');
        char *longer = xasprintf("%s %s", path, each->name);
        fish_print(each, longer);
        free(longer);
    }
}

int completion_command(const struct cli_call *call)
{
    const char *shell = call->words[0];
    if (strcmp(shell, "fish") == 0) {
        fputs(fish_head, stdout);
        fish_print(&cli_root, "");
        return EXIT_DONE;
    }
    if (strcmp(shell, "zsh") == 0)
        fputs("#compdef troupe\nautoload -U +X bashcompinit && bashcompinit\n", stdout);
    else if (strcmp(shell, "bash") != 0)
        return cli_wrong(call->name, "'%s': there are bash, zsh and fish", shell);
    bash_print();
    return EXIT_DONE;
}
