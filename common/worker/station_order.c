// Orders of operators.
#include "worker/station_private.h"

static const char *role_name(Penstock__Role role)
{
    return role == PENSTOCK__ROLE__ROLE_PREFILL ? "prefill" : "decode";
}

static status flip_order(station *s, Penstock__Role role, error *failure)
{
    if (role == s->role->role)
        return error_set(failure, STATUS_INVALID, "role", "it is a %s worker already",
                         s->role->name);
    if (worker_draining(s->worker))
        return error_set(failure, STATUS_UNAVAILABLE, "", "it drains already");
    const worker_settings *w = &s->config->worker;
    const char *config =
        role == PENSTOCK__ROLE__ROLE_PREFILL ? w->prefill_config : w->decode_config;
    status result =
        flip_prepare(s->role->name, role_name(role), config, s->argc, s->argv, &s->flip, failure);
    if (result == STATUS_OK)
        worker_drain(s->worker);
    return result;
}

void station_order(station *s, const worker_event *event)
{
    const Penstock__Order *o = event->message->order;
    status result = STATUS_OK;
    error failure;
    switch (o->kind) {
    case PENSTOCK__ORDER_KIND__ORDER_DRAIN:
        flip_free(s->flip); // it leaves for good
        s->flip = NULL;
        worker_drain(s->worker);
        break;
    case PENSTOCK__ORDER_KIND__ORDER_CORDON:
        worker_cordon(s->worker, true);
        break;
    case PENSTOCK__ORDER_KIND__ORDER_UNCORDON:
        worker_cordon(s->worker, false);
        break;
    case PENSTOCK__ORDER_KIND__ORDER_FLIP:
        result = flip_order(s, o->role, &failure);
        break;
    default: // a kind of a later protocol
        result = error_set(&failure, STATUS_UNSUPPORTED, "kind", "it does not know this order");
    }
    log_info(s->role->name, "order kind %d role %d %s reason %s", (int)o->kind, (int)o->role,
             result == STATUS_OK ? "accepted" : "refused",
             result == STATUS_OK ? "-" : failure.text);
    report_order(event->router, o->id, result == STATUS_OK ? NULL : &failure);
}
