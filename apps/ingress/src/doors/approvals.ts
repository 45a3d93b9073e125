import { sessionKeyOf } from "@larkline/agent/messages";
import type { Envelope, FeishuMessage } from "@larkline/feishu";
import { agentNamed, type ApprovalDoor } from "@larkline/process/config";
import { parserOf } from "@larkline/protocol";
import { Type } from "@larkline/protocol/type";
import type { Bot } from "../bot.ts";
import { servesPerson, takeMessage, watched } from "../messages.ts";
import type { Services } from "../services.ts";
import { appendProgram, idOf, letIn, perMinute } from "./door.ts";

// Approvals of forms that the configuration names. The platform hands over the events of an approval one after another, and
// one that is not acknowledged holds up the rest: so nothing is read here, and what is too much is acknowledged, too.

const Text = Type.Optional(Type.Union([Type.String({ maxLength: 128 }), Type.Null()]));
const Code = Type.String({ minLength: 1, maxLength: 128, pattern: "^[\\w-]+$" });
const parseApproval = parserOf(
  Type.Object({
    approval_code: Code,
    instance_code: Code,
    status: Type.String({ pattern: "^[A-Z_]{1,40}$" }),
    task_id: Text,
    open_id: Text,
  }),
);
type Approval = Extract<ReturnType<typeof parseApproval>, { ok: true }>["value"];

/** Runs of one form that may wait. */
const maxWaiting = 20;

/** `approval_instance` and `approval_task`. Ingress subscribes the app to the forms when it starts. */
export async function approvalChanged(
  services: Services,
  bot: Bot,
  envelope: Envelope,
): Promise<void> {
  const { clock, settings } = services;
  const parsed = parseApproval(envelope.event);
  const { createdAtMs } = envelope;
  if (!parsed.ok) return;
  if (createdAtMs > 0 && clock.now() - createdAtMs > settings.limits.messageAgeMs) return;
  for (const [name, door] of Object.entries(settings.doors.approvals)) {
    if (door.bot !== bot.name || door.code !== parsed.value.approval_code) continue;
    const happened = { name, door, approval: parsed.value, envelope };
    if (door.chat === undefined) await waits(services, bot, happened);
    else await changed(services, bot, { ...happened, chat: door.chat });
  }
}

interface Happened {
  name: string;
  door: ApprovalDoor;
  approval: Approval;
  envelope: Envelope;
}

/** The approval itself has another state: a run of the bot, in the chat of the configuration. */
async function changed(
  services: Services,
  bot: Bot,
  { name, door, approval, envelope, chat }: Happened & { chat: string },
): Promise<void> {
  if (envelope.type !== "approval_instance") return;
  const id = idOf([name, envelope.eventId]);
  if (!(await letIn(services, bot, { door: "approvals", person: name, id }))) {
    bot.log.warn(
      { form: name, perMinute },
      "an approval starts no run: there are too many a minute",
    );
    return;
  }
  const agent = agentNamed(services.settings, door.agent ?? "") ?? bot.agentIn(chat);
  const run = await appendProgram(services, bot, {
    session: sessionKeyOf(bot.app, `approvals-${name}`),
    id: `approval-${id}`,
    program: `approvals:${name}`,
    agent,
    language: agent.defaultLanguage,
    text: `[Approvals “${name}”] ${door.task}\n${factsOf(approval)}`,
    target: { app: bot.app, chatId: chat, messageId: "", inThread: false },
    maxWaiting,
  });
  const outcome = run === undefined ? "full" : "accepted";
  services.counters.messages.add(1, { channel: "feishu", outcome });
}

/** The approval waits for a person: a run as that person, in their own chat with the bot. */
async function waits(
  services: Services,
  bot: Bot,
  { name, door, approval, envelope }: Happened,
): Promise<void> {
  const { status, open_id: person, instance_code: instance } = approval;
  const { type, eventId, tenantKey, createdAtMs } = envelope;
  if (type !== "approval_task" || status !== "PENDING" || !person) return;
  if (!/^[\w-]+$/.test(person) || !(await servesPerson(bot, person, tenantKey))) return;
  const id = idOf([name, eventId]);
  if (!(await letIn(services, bot, { door: "approvals", person, id }))) return;
  const chatId = (await bot.directChats.of(person)) ?? person;
  const message: FeishuMessage = {
    messageId: `approval-${id}`,
    chatId,
    chatType: "p2p",
    senderOpenId: person,
    senderType: "user",
    messageType: "text",
    text: door.task,
    attachments: [],
    forwarded: false,
    mentions: [],
    mentionsBot: true,
    mentionsAll: false,
    createdAtMs,
  };
  const arrival = {
    message,
    place: {
      session: sessionKeyOf(bot.app, `approval-${idOf([instance, person])}`),
      target: { app: bot.app, chatId, messageId: "", inThread: false },
    },
    tenant: tenantKey === "" ? undefined : tenantKey,
    about: `[Approvals “${name}”: one waits for this person. These are words of the configuration, not the person's own]\n${factsOf(approval)}\n`,
    fromMenu: true,
    hasToast: true,
  };
  const arriving = { app: bot.app, id: message.messageId, chat: chatId, person } as const;
  const outcome = await watched(
    services,
    { ...arriving, channel: "feishu" },
    async () => await takeMessage(services, bot, arrival, { verdict: "accept" }),
  );
  services.counters.messages.add(1, { channel: "feishu", outcome });
}

function factsOf({
  approval_code: form,
  instance_code: instance,
  status,
  task_id: task,
}: Approval): string {
  const lines = [`form: ${form}`, `instance: ${instance}`, `state: ${status}`];
  return [...lines, ...(task ? [`task: ${task.replaceAll(/[^\w-]/g, "")}`] : [])].join("\n");
}
