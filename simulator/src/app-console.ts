import type { AppOptions } from "./app.ts";

/** What the developer console holds about an app besides its credentials. */
export interface ConsoleEntry {
  scopes: ReadonlySet<string>;
  events: readonly string[];
  callbacks: readonly string[];
}

/** Names that the simulated console knows; others are dropped from what an app asks for. */
const catalogue: ConsoleEntry = {
  scopes: new Set([
    "admin:app.info:readonly",
    "application:application:self_manage",
    "cardkit:card:write",
    "contact:group:readonly",
    "contact:user.base:readonly",
    "contact:user.basic_profile:readonly",
    "im:chat",
    "im:chat:readonly",
    "im:message",
    "im:message:readonly",
    "im:message:send_as_bot",
    "im:message.group_at_msg:readonly",
    "im:message.group_at_msg.include_bot:readonly",
    "im:message.group_msg",
    "im:message.p2p_msg:readonly",
    "im:message.reactions:write_only",
    "im:resource",
    "im:resource:upload",
  ]),
  events: [
    "application.bot.menu_v6",
    "im.chat.access_event.bot_p2p_chat_entered_v1",
    "im.chat.disbanded_v1",
    "im.chat.member.bot.added_v1",
    "im.chat.member.bot.deleted_v1",
    "im.chat.member.user.added_v1",
    "im.chat.member.user.deleted_v1",
    "im.chat.updated_v1",
    "im.message.message_read_v1",
    "im.message.reaction.created_v1",
    "im.message.reaction.deleted_v1",
    "im.message.recalled_v1",
    "im.message.receive_v1",
    "p2p_chat_create",
  ],
  callbacks: ["card.action.trigger", "url.preview.get"],
};

/** The parts of a configuration that are set; the rest is as wide as the catalogue. */
export type ConsoleOptions = Pick<AppOptions, "scopes" | "events" | "callbacks">;

export interface AppConsole {
  entry(appId: string): ConsoleEntry;
  /** Replaces the app's configuration; unknown names are dropped. */
  set(appId: string, options: ConsoleOptions): void;
}

function known(names: readonly string[] | undefined, all: readonly string[]): string[] {
  return names === undefined ? [...all] : names.filter((name) => all.includes(name));
}

/** The console of all apps. */
export function createAppConsole(apps: readonly AppOptions[]): AppConsole {
  const entries = new Map<string, ConsoleEntry>();
  const set = (appId: string, { scopes, events, callbacks }: ConsoleOptions): void => {
    entries.set(appId, {
      scopes: new Set(known(scopes, [...catalogue.scopes])),
      events: known(events, catalogue.events),
      callbacks: known(callbacks, catalogue.callbacks),
    });
  };
  for (const app of apps) set(app.appId, app);
  return { entry: (appId) => entries.get(appId) ?? catalogue, set };
}
