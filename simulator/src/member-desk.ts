import type { ChatDesk } from "./chat-desk.ts";
import {
  botsOf,
  firstMember,
  knownApp,
  knownChat,
  knownUser,
  membershipEvent,
  pushAll,
  tellBots,
} from "./chat-events.ts";
import type { SimChat, SimUser } from "./directory.ts";
import { envelope, userIds } from "./event-envelope.ts";
import type { JsonObject } from "./json-fields.ts";
import type { Platform } from "./platform.ts";

type MemberDesk = Pick<ChatDesk, "addBot" | "removeBot" | "addMembers" | "removeMember">;

/** Bots and people that join and leave groups. */
export function createMemberDesk(platform: Platform): MemberDesk {
  const operatorOf = (chat: SimChat, openId: string | undefined): SimUser | undefined =>
    openId === undefined ? firstMember(platform, chat) : knownUser(platform, openId);
  return {
    addBot(chatId, appId, { operator } = {}) {
      const chat = knownChat(platform, chatId);
      const app = knownApp(platform, appId);
      chat.bots.add(appId);
      const event = membershipEvent(platform, chat, operatorOf(chat, operator));
      return pushAll(platform, [app], () =>
        envelope(app, { eventType: "im.chat.member.bot.added_v1", event, createdAt: platform.now() }),
      );
    },
    removeBot(chatId, { appId, operator } = {}) {
      const chat = knownChat(platform, chatId);
      const removed = appId === undefined ? botsOf(platform, chat) : [knownApp(platform, appId)];
      for (const app of removed) chat.bots.delete(app.appId);
      const event = membershipEvent(platform, chat, operatorOf(chat, operator));
      return pushAll(platform, removed, (app) =>
        envelope(app, { eventType: "im.chat.member.bot.deleted_v1", event, createdAt: platform.now() }),
      );
    },
    addMembers(chatId, openIds) {
      const chat = knownChat(platform, chatId);
      const users = openIds.map((openId) => knownUser(platform, openId));
      for (const { openId } of users) chat.members.add(openId);
      const event = { ...membershipEvent(platform, chat, firstMember(platform, chat)), users: views(platform, users) };
      return tellBots(platform, chat, { eventType: "im.chat.member.user.added_v1", event });
    },
    removeMember(chatId, openId) {
      const chat = knownChat(platform, chatId);
      const user = knownUser(platform, openId);
      chat.members.delete(openId);
      const event = { ...membershipEvent(platform, chat, firstMember(platform, chat)), users: views(platform, [user]) };
      return tellBots(platform, chat, { eventType: "im.chat.member.user.deleted_v1", event });
    },
  };
}

function views(platform: Platform, users: readonly SimUser[]): JsonObject[] {
  const [app] = platform.apps.values();
  return users.map((user) => ({
    name: user.name,
    tenant_key: user.tenantKey ?? app?.tenantKey ?? "",
    user_id: userIds(user),
  }));
}
