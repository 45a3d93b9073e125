import { missingScopes } from "./api-scopes.ts";
import type { SimUser } from "./directory.ts";
import type { JsonObject } from "./json-fields.ts";
import { success, type ApiCallContext, type ApiRoute, type Platform } from "./platform.ts";
import { fieldError, PlatformError } from "./platform-error.ts";

const maximumBatch = 10;

/** People of the tenant (contact pages). */
export function contactRoutes(platform: Platform): ApiRoute[] {
  return [
    {
      method: "GET",
      path: "/open-apis/contact/v3/users/:user_id",
      handle: (call) => readUser(platform, call),
    },
    {
      method: "POST",
      path: "/open-apis/contact/v3/users/basic_batch",
      limits: { perSecond: 5 },
      handle: (call) => basicBatch(platform, call),
    },
  ];
}

/** The name needs a scope, and the person within the app's contact range; without the range it is left out. */
function readUser(platform: Platform, call: ApiCallContext): JsonObject {
  checkNames(platform, call, "contact:user.base:readonly");
  const user = findUser(platform, call, call.params.user_id ?? "");
  const { name, ...ids } = userView(user);
  return success({ user: platform.nameScopes.get(call.app.appId) === "hidden" ? ids : { ...ids, name } });
}

function checkNames(platform: Platform, { app }: ApiCallContext, scope: string): void {
  if (platform.nameScopes.get(app.appId) === "refused") throw missingScopes([scope]);
}

function findUser(platform: Platform, call: ApiCallContext, id: string): SimUser {
  const user = userById(platform, call, id);
  if (user === undefined) throw new PlatformError(99992361, "open_id cross app");
  return user;
}

function userById(platform: Platform, call: ApiCallContext, id: string): SimUser | undefined {
  const type = call.query.get("user_id_type") ?? "open_id";
  if (type === "open_id") return platform.directory.users.get(id);
  return [...platform.directory.users.values()].find(
    (user) => (type === "union_id" ? user.unionId : user.userId) === id,
  );
}

function userView(user: SimUser): JsonObject {
  return { open_id: user.openId, union_id: user.unionId, user_id: user.userId, name: user.name };
}

/** Names of up to 10 people, whatever the contact range; unknown ids are left out. */
function basicBatch(platform: Platform, call: ApiCallContext): JsonObject {
  checkNames(platform, call, "contact:user.basic_profile:readonly");
  const ids = call.body.user_ids;
  if (!Array.isArray(ids) || ids.length < 1 || ids.length > maximumBatch) {
    throw fieldError("user_ids", `must hold 1 to ${maximumBatch} ids`);
  }
  const users = ids.flatMap((id: unknown) => {
    const user = typeof id === "string" ? userById(platform, call, id) : undefined;
    return user === undefined ? [] : [{ user_id: id, name: user.name }];
  });
  return success({ users });
}
