import type { ApiCallContext, ApiRoute } from "../api-route.ts";
import { isJsonObject, type JsonObject, PlatformError, success } from "../open-api.ts";
import type { Platform } from "../platform.ts";
import type { Entry, SimDrive } from "./drive.ts";
import { actorOf, type Right, type WorkWorld } from "./world.ts";

// Who may open a file ("Permission overview"). Its owner and those with full access may change that.

const kinds = ["docx", "sheet", "bitable", "file", "folder", "wiki", "doc", "mindnote", "slides"];
const memberKinds: Readonly<Record<string, RegExp>> = { openid: /^ou_/, openchat: /^oc_/ };
const limits = { perMinute: 100 };

export function sharingRoutes(platform: Platform, world: WorkWorld, drive: SimDrive): ApiRoute[] {
  world.setChats((who, chatId) => platform.directory.chats.get(chatId)?.members.has(who) === true);
  const path = "/open-apis/drive/v1/permissions/:token/members";
  /** The object, where the caller may see it; to change who has access takes more. */
  const shared = (call: ApiCallContext, right: Right): Entry => {
    if (!kinds.includes(call.query.get("type") ?? "")) {
      throw new PlatformError(1063001, "invalid type");
    }
    const entry = drive.entry(call.params.token ?? "");
    if (entry === undefined || entry.type !== call.query.get("type")) {
      throw new PlatformError(1063005, "resource deleted");
    }
    world.require(call, entry.token, { code: 1063002 });
    if (entry.owner !== actorOf(call) && !world.may(actorOf(call), entry.token, right)) {
      throw new PlatformError(right === "view" ? 1063002 : 1063004, "permission denied", {
        status: 403,
      });
    }
    return entry;
  };
  const nameOf = (id: string): string =>
    platform.directory.users.get(id)?.name ?? platform.directory.chats.get(id)?.name ?? "";
  const memberOf = (kind: unknown, id: unknown): string => {
    const form = memberKinds[String(kind)];
    if (form === undefined || !form.test(String(id)) || nameOf(String(id)) === "") {
      throw new PlatformError(1063001, "invalid member");
    }
    return String(id);
  };
  const viewOf = ([id, right]: [string, Right], { owner }: Entry): JsonObject => ({
    member_type: id.startsWith("oc_") ? "openchat" : "openid",
    member_id: id,
    perm: id === owner ? "full_access" : right,
    type: id.startsWith("oc_") ? "chat" : "user",
    name: nameOf(id),
  });
  return [
    {
      method: "GET",
      path,
      personScopes: ["docs:permission.member:retrieve", "docs:permission.member", "drive:drive"],
      limits,
      handle: (call) => {
        const entry = shared(call, "view");
        return success({
          items: world.sharedWith(entry.token).map((member) => viewOf(member, entry)),
        });
      },
    },
    {
      method: "POST",
      path,
      personScopes: ["docs:permission.member:create", "docs:permission.member", "drive:drive"],
      limits,
      handle: (call) => {
        const entry = shared(call, "full_access");
        const id = memberOf(call.body.member_type, call.body.member_id);
        const { perm } = call.body;
        if (perm !== "view" && perm !== "edit" && perm !== "full_access") {
          throw new PlatformError(1063001, "invalid perm");
        }
        if (id === entry.owner) throw new PlatformError(1063003, "invalid operation");
        const isPageAlone = call.body.perm_type === "single_page";
        const below = isPageAlone ? [] : drive.objectsBelow(call.params.token ?? "");
        for (const token of [entry.token, ...below]) world.share(token, id, perm);
        world.record(call, "drive.share", `${entry.name} ${nameOf(id)} ${perm}`);
        return success({ member: viewOf([id, perm], entry) });
      },
    },
    {
      method: "DELETE",
      path: `${path}/:member_id`,
      personScopes: ["docs:permission.member:delete", "docs:permission.member", "drive:drive"],
      limits,
      handle: (call) => {
        const entry = shared(call, "full_access");
        const id = memberOf(call.query.get("member_type"), call.params.member_id);
        const has = world.sharedWith(entry.token).some(([one]) => one === id);
        if (id === entry.owner || !has) throw new PlatformError(1063003, "invalid operation");
        if (!isJsonObject(call.body)) throw new PlatformError(1063001, "invalid body");
        world.unshare(entry.token, id);
        world.record(call, "drive.unshare", `${entry.name} ${nameOf(id)}`);
        return success({});
      },
    },
  ];
}
