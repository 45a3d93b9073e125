import type { HandlerTool } from "@larkline/tool-kit";
import { Type } from "typebox";
import { checkedId, type Platform, quoted, type Remedies, type Settings } from "./platform.ts";
import { workTool } from "./work-tool.ts";

// People and groups by name, and names by id.

const peopleRemedies: Remedies = {
  99992361: "There is no such person in this company.",
  99992351: "This is no open id of a person.",
  232006: "There is no such group.",
  232009: "The group was dissolved.",
  41050: "The person may not see this person.",
};

/** A person by open id. */
export const PersonId = Type.String({
  pattern: "^ou_[A-Za-z0-9_-]{1,80}$",
  description: "Open id of a person, as find_people gives it.",
});
/** A group by its id. */
export const ChatId = Type.String({
  pattern: "^oc_[A-Za-z0-9_-]{1,80}$",
  description: "Id of a chat, as find_people gives it.",
});

const namesOfCall = 10;
const maxNames = 50;

/** Names of people; ids without a name stay ids. Asks for 50 people at most. */
export async function namesOf(
  platform: Platform,
  openIds: readonly string[],
): Promise<(openId: string) => string> {
  const ids = [...new Set(openIds)].filter((id) => id.startsWith("ou_")).slice(0, maxNames);
  const names = new Map<string, string>();
  for (let at = 0; at < ids.length; at += namesOfCall) {
    const { users = [] } = await platform.read((client, as) =>
      client.contact.v3.user.basicBatch(
        {
          data: { user_ids: ids.slice(at, at + namesOfCall) },
          params: { user_id_type: "open_id" },
        },
        as,
      ),
    );
    for (const { user_id: id, name } of users) {
      if (id !== undefined && name !== undefined) names.set(id, nameIn(name));
    }
  }
  return (openId) => names.get(openId) ?? openId;
}

/** A name comes as text, or by language. */
function nameIn(name: unknown): string {
  if (typeof name === "string") return name;
  const { default_value: text }: { default_value?: unknown } =
    typeof name === "object" && name !== null ? name : {};
  return typeof text === "string" ? text : "";
}

/** The name of a chat that the person is in. Outsiders who know the id get the name, too, and no more: that is refused. */
export async function chatName(platform: Platform, chatId: string): Promise<string> {
  const path = { chat_id: checkedId(chatId, "a chat") };
  const { name = "", chat_mode: mode } = await platform.read((client, as) =>
    client.im.v1.chat.get({ path }, as),
  );
  if (mode === undefined) throw new Error("The person is not in this chat.");
  return name;
}

interface FoundPeople {
  users?: { open_id?: string; name?: string }[];
  has_more?: boolean;
}

const maxFound = 20;

function findPeople(settings: Settings): HandlerTool {
  return workTool(settings, peopleRemedies, {
    name: "find_people",
    description:
      "Finds people of the company and groups of the person by name, with the ids that other tools take. " +
      "If several people have the name, ask the person which one is meant.",
    title: { zh: "找人和群", en: "Find people and groups" },
    summary: { zh: "查找「{name}」", en: "Find {name}" },
    input: {
      name: Type.String({
        minLength: 1,
        maxLength: 60,
        description: "Name of a person or a group, or a part of it.",
      }),
      kind: Type.Optional(
        Type.Enum(["people", "groups", "both"], { description: "Default both." }),
      ),
    },
    effect: "pure",
    scopes: ["contact:user:search", "im:chat:read"],
    reach: "reads",
    run: async ({ name, kind = "both" }, platform) => {
      const lines: string[] = [];
      if (kind !== "groups") {
        const url = "/open-apis/search/v1/user";
        const { users = [], has_more: more } = await platform.read<FoundPeople>((client, as) =>
          client.request({ method: "GET", url, params: { query: name, page_size: maxFound } }, as),
        );
        lines.push(
          ...users.map(({ name: called = "", open_id: id = "" }) => {
            const isAsker = id === platform.openId ? " (the person who asks)" : "";
            return `- person ${called}: ${id}${isAsker}`;
          }),
        );
        if (more === true) lines.push("- more people: use a longer part of the name");
      }
      if (kind !== "people") {
        const { items = [], has_more: more } = await platform.read((client, as) =>
          client.im.v1.chat.search({ params: { query: name, page_size: maxFound } }, as),
        );
        lines.push(...items.map((chat) => `- group ${chat.name ?? ""}: ${chat.chat_id ?? ""}`));
        if (more === true) lines.push("- more groups: use a longer part of the name");
      }
      if (lines.length === 0) {
        return "No person or group was found. The search knows neither people of other companies nor those who left, nor groups without the person.";
      }
      return quoted("search", lines.join("\n"));
    },
  });
}

/** Finds people and groups. */
export const peopleTools = [findPeople];
