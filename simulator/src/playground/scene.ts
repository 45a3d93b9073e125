import type { FeishuSimulator, SimChat } from "../index.ts";
import type { ChatView, PlaygroundState } from "./view.ts";

const shownMessages = 300;
const shownEntries = 200;

/** Two people with a chat of their own each, and a group of both with the bot. */
export function createScene(simulator: FeishuSimulator): void {
  const names = ["张伟 Wei", "Alice"];
  const people = names.map((name) => simulator.addUser({ name }));
  for (const { openId, name } of people) simulator.addChat({ type: "p2p", name, members: [openId] });
  simulator.addChat({ type: "group", name: "项目组 Project", members: people.map((person) => person.openId) });
}

export function chatView(chat: SimChat): ChatView {
  const { chatId, type, topic, name } = chat;
  return { chatId, type, topic, name, members: [...chat.members], bots: [...chat.bots] };
}

/** The latest of everything, bounded. */
export function stateOf(simulator: FeishuSimulator, monthCalls: number): PlaygroundState {
  const chats = [...simulator.chats.values()];
  return {
    apps: simulator.apps,
    people: [...simulator.users.values()].map(({ openId, name }) => ({ openId, name })),
    chats: chats.map(chatView),
    messages: chats.flatMap((chat) => simulator.messages(chat.chatId).slice(-shownMessages)),
    calls: simulator.apiCalls.slice(-shownEntries),
    deliveries: simulator.deliveries.slice(-shownEntries),
    refusals: simulator.refusals.slice(-shownEntries),
    monthCalls,
    faults: simulator.faults.size,
  };
}
