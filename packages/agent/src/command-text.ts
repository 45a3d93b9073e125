import type { InboundMessage, ReplyLanguage } from "@larkline/protocol";
import { inlineCode, noticeText, oneLine } from "./notice.ts";

/** What `/status` tells. */
export interface StatusFacts {
  nowMs: number;
  /** The model that answers here. */
  model: string;
  /** Messages that wait, the one being answered not included. */
  waiting: number;
  /** Messages of the conversation so far. */
  messages: number;
  /** What is being answered, if anything: since when, which model step, and the tools it waits for. */
  running?: { startedAtMs: number; step: number; tools: readonly string[] };
  /** Calls of this conversation that wait for people, also those of turns that wait while others are answered. */
  asked?: readonly AskedCall[];
}

/** A call that waits for people. */
export interface AskedCall {
  tool: string;
  /** Whose turn it is of, and who decides, as people are called. */
  requester: string;
  deciders: string;
  sinceMs: number;
}

/** What `/model` tells. */
export interface ModelFacts {
  /** The model that answers here now. */
  model: string;
  /** The model without a choice. */
  defaultModel: string;
  /** Models that may be chosen, each `<provider>/<id>`. */
  models: readonly string[];
}

function lines(
  language: ReplyLanguage,
  rows: readonly (readonly [zh: string, en: string, value: string] | undefined)[],
): string {
  return rows
    .flatMap((row) => {
      if (row === undefined) return [];
      const [zh, en, value] = row;
      return language === "zh" ? `- ${zh}：${value}` : `- ${en}: ${value}`;
    })
    .join("\n");
}

type Running = NonNullable<StatusFacts["running"]>;

function runningText({ startedAtMs, step, tools }: Running, nowMs: number, language: ReplyLanguage): string {
  const seconds = Math.max(0, Math.round((nowMs - startedAtMs) / 1_000));
  const names = tools.map((name) => inlineCode(name));
  if (language === "zh") {
    const waiting = names.length > 0 ? `，正在等待 ${names.join("、")}` : "";
    return `正在回答，已进行 ${seconds} 秒，第 ${step} 步${waiting}`;
  }
  const waiting = names.length > 0 ? `, waiting for ${names.join(", ")}` : "";
  return `answering for ${seconds} s, step ${step}${waiting}`;
}

function sinceText(ms: number, language: ReplyLanguage): string {
  const minutes = Math.max(0, Math.round(ms / 60_000));
  if (minutes < 120) return language === "zh" ? `${minutes} 分钟` : `${minutes} min`;
  return language === "zh" ? `${Math.round(minutes / 60)} 小时` : `${Math.round(minutes / 60)} h`;
}

function askedText({ tool, requester, deciders, sinceMs }: AskedCall, nowMs: number, language: ReplyLanguage): string {
  const [of, by, passed] = [oneLine(requester, 64), oneLine(deciders, 200), sinceText(nowMs - sinceMs, language)];
  return language === "zh"
    ? `${inlineCode(tool)}（${of} 发起，由 ${by} 决定，已等待 ${passed}）`
    : `${inlineCode(tool)} (asked for by ${of}, ${by} may decide, for ${passed})`;
}

const maxAsked = 10;

/** What `/status` answers. */
export function statusText(language: ReplyLanguage, facts: StatusFacts): string {
  const { nowMs, model, waiting, messages, running, asked = [] } = facts;
  const shown = asked.slice(0, maxAsked).map((call) => askedText(call, nowMs, language));
  const calls = [...shown, ...(asked.length > maxAsked ? ["…"] : [])].join(language === "zh" ? "；" : "; ");
  const idle = language === "zh" ? "空闲" : "idle";
  return lines(language, [
    ["状态", "State", running === undefined ? idle : runningText(running, nowMs, language)],
    calls === "" ? undefined : ["等待审批", "Waiting for a decision", calls],
    ["等待中的消息", "Waiting messages", String(waiting)],
    ["对话中的消息", "Messages in this conversation", String(messages)],
    ["模型", "Model", inlineCode(model)],
  ]);
}

/** What `/whoami` answers: the sender as the bot sees them, and where they are. */
export function whoamiText(
  language: ReplyLanguage,
  message: Pick<InboundMessage, "sender" | "chatType" | "session" | "app" | "agent">,
): string {
  const { sender, session, app, agent } = message;
  return lines(language, [
    sender.name === undefined ? undefined : ["名字", "Name", oneLine(sender.name, 64)],
    ["用户 ID", "User id", inlineCode(sender.id)],
    ["应用", "App", inlineCode(app)],
    ["对话", "Conversation", inlineCode(session)],
    agent === undefined ? undefined : ["智能体", "Agent", inlineCode(agent)],
  ]);
}

/** What `/model` answers without an argument. */
export function modelText(language: ReplyLanguage, { model, defaultModel, models }: ModelFacts): string {
  const choices = [...new Set([defaultModel, ...models])].map((name) => {
    const marks = name === defaultModel ? (language === "zh" ? "（默认）" : " (default)") : "";
    return `- ${inlineCode(name)}${marks}`;
  });
  const now = language === "zh" ? `当前模型：${inlineCode(model)}` : `Current model: ${inlineCode(model)}`;
  const how =
    language === "zh"
      ? "用 `/模型 名称` 选择，用 `/模型 默认` 恢复："
      : "Choose with `/model name`, go back with `/model default`:";
  return choices.length > 1 ? [now, "", how, ...choices].join("\n") : now;
}

/** What `/model` answers to a name that is not among the choices. */
export function modelUnknownText(language: ReplyLanguage, wanted: string, facts: ModelFacts): string {
  return `${noticeText("modelUnknown", language, { model: wanted })}\n\n${modelText(language, facts)}`;
}
