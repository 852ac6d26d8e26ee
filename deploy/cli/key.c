// Making an API key: the line for the router's file goes to standard output, the key itself, which
// is kept nowhere, to standard error, so that `penstock key NAME >>FILE` does what it says.
#include "deploy/cli/cli.h"

#include "net/http_key_line.h"

#include <stdio.h>

int cli_key(const cli *c, const char *name, int count, char **arguments)
{
    (void)name;
    char secret[HTTP_SECRET_SIZE];
    uint8_t digest[HTTP_DIGEST_SIZE];
    http_key_line unused;
    error failure;
    buffer line = { 0 };
    for (int i = 0; i < count; i++) {
        if (arguments[i][0] && !strpbrk(arguments[i], " \t\r\n"))
            continue;
        fprintf(stderr, "penstock: \"%s\" cannot stand in a line of the keys' file\n",
                arguments[i]);
        return 2;
    }
    http_secret_new(secret);
    http_sha256(slice_of(secret), digest);
    buffer_printf(&line, "%s sha256:", arguments[0]);
    for (size_t i = 0; i < sizeof digest; i++)
        buffer_printf(&line, "%02x", digest[i]);
    for (int i = 1; i < count; i++)
        buffer_printf(&line, " %s", arguments[i]);
    // What the router would refuse is not printed: a line at fault would stand in its file.
    if (http_key_line_parse(buffer_slice(&line), &unused, &failure) != STATUS_OK) {
        fprintf(stderr, "penstock: %s\n", failure.text);
        buffer_close(&line);
        return 2;
    }
    if (c->json) {
        json_t *answer =
            json_pack("{s:s,s:s,s:s}", "name", arguments[0], "key", secret, "line", line.data);
        json_dumpf(answer, stdout, JSON_INDENT(2));
        printf("\n");
        json_decref(answer);
    } else {
        printf("%s\n", line.data);
        fflush(stdout);
        fprintf(stderr, "the key of %s, shown this once: %s\n", arguments[0], secret);
    }
    buffer_close(&line);
    return 0;
}
