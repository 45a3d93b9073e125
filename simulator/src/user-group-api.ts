import type { SimUserGroup } from "./directory.ts";
import type { JsonObject } from "./json-fields.ts";
import { success, type ApiCallContext, type ApiRoute, type Platform } from "./platform.ts";
import { PlatformError } from "./platform-error.ts";

const defaultPageSize = 500;
const maximumPageSize = 1_000;

/** User groups of the tenant ("Query the user groups of a user"). */
export function userGroupRoutes(platform: Platform): ApiRoute[] {
  return [
    {
      method: "GET",
      path: "/open-apis/contact/v3/group/member_belong",
      handle: (call) => groupsOfMember(platform, call),
    },
  ];
}

function groupsOfMember(platform: Platform, call: ApiCallContext): JsonObject {
  const openId = memberOf(platform, call);
  const matches = typeFilter(call.query.get("group_type"));
  const ids = [...platform.directory.userGroups.values()]
    .filter((group) => group.members.has(openId) && matches(group))
    .map(({ groupId }) => groupId);
  const { size, start } = pageOf(call);
  const next = start + size;
  const more = next < ids.length;
  return success({ group_list: ids.slice(start, next), has_more: more, ...(more ? { page_token: `p${next}` } : {}) });
}

/** A person outside the app's contact range is refused. */
function memberOf(platform: Platform, call: ApiCallContext): string {
  const type = call.query.get("member_id_type") ?? "open_id";
  const id = call.query.get("member_id") ?? "";
  const users = [...platform.directory.users.values()];
  const finders: Readonly<Record<string, () => (typeof users)[number] | undefined>> = {
    open_id: () => platform.directory.users.get(id),
    union_id: () => users.find(({ unionId }) => unionId === id),
    user_id: () => users.find(({ userId }) => userId === id),
  };
  const find = Object.hasOwn(finders, type) ? finders[type] : undefined;
  if (find === undefined) throw new PlatformError(41071, "invalid member_id_type");
  const user = find();
  if (user === undefined) throw new PlatformError(41073, "invalid member_id");
  if (platform.nameScopes.get(call.app.appId) === "hidden") {
    throw new PlatformError(41050, "no user authority error", { status: 403 });
  }
  return user.openId;
}

function typeFilter(type: string | null): (group: SimUserGroup) => boolean {
  if (type === null || type === "") return () => true;
  if (type !== "1" && type !== "2") throw new PlatformError(41074, "invalid member_type");
  return ({ dynamic }) => dynamic === (type === "2");
}

function pageOf({ query }: ApiCallContext): { size: number; start: number } {
  const size = Number(query.get("page_size") || defaultPageSize);
  if (!Number.isInteger(size) || size < 1 || size > maximumPageSize) {
    throw new PlatformError(40011, "page size is invalid");
  }
  const token = query.get("page_token") ?? "";
  if (token !== "" && !/^p\d{1,9}$/.test(token)) throw new PlatformError(40012, "page token is invalid");
  return { size, start: Number(token.slice(1) || 0) };
}
