// What `npm start` shows with the simulated platform and the scripted model, while there is no larkline.config.ts.
// The types of Node are not known here.
const { env } = (globalThis as unknown as { process: { env: Record<string, string | undefined> } })
  .process;
/** Alice of the playground. */
const alice = "ou_00000000000000000000000000000002";
const memory = { person: "direct", chat: true };

export default {
  // The trace id of a card opens "Why no answer?".
  console: { url: env["PLAYGROUND_CONSOLE_URL"] ?? "http://127.0.0.1:8003" },
  roles: { managers: { title: { zh: "经理", en: "Managers" }, people: [alice] } },
  permissions: ["announcement*", "公告*"].map((subject) => ({
    tools: ["add_note"],
    subject,
    do: "ask",
    approvers: { roles: ["managers"] },
    reason: {
      zh: "公告由经理决定：这里是 Alice。",
      en: "Announcements are for a manager to decide: here that is Alice.",
    },
  })),
  agents: {
    default: {
      memory,
      files: true,
      todos: true,
      questions: true,
      schedules: true,
      description: "The front desk.",
      handoffs: [
        { agent: "expert", when: "the person asks for the expert" },
        { agent: "panel", when: "the person asks for the team" },
      ],
      helpers: [{ agent: "helper", as: "send_helper" }],
    },
    expert: {
      title: { zh: "专家", en: "Expert" },
      memory,
      questions: true,
      description: "Knows everything about Larkline.",
      handoffs: ["default"],
    },
    helper: {
      title: { zh: "调查助手", en: "Researcher" },
      instructions: "You are a helper.",
      description: "Looks at one thing.",
      tools: ["wait"],
    },
    writer: {
      title: { zh: "撰稿人", en: "Writer" },
      instructions: "You write.",
      description: "Writes texts.",
      tools: [],
    },
    critic: {
      title: { zh: "审稿人", en: "Critic" },
      instructions: "You criticise. Say APPROVED when a text is good.",
      description: "Reads texts.",
      tools: [],
    },
  },
  // The pages of meetings, mails, tasks and the calendar let these happen.
  doors: {
    tasks: true,
    personal: { events: ["meeting-ended", "minutes-ready", "mail", "calendar"] },
  },
  feishu: {
    feedback: true,
    // PLAYGROUND_CONSENT=code shows the code flow in place of the device flow.
    ...(env["PLAYGROUND_CONSENT"] === "code" && {
      consentUrl: `${env["PLAYGROUND_INGRESS_URL"] ?? "http://127.0.0.1:8000"}/feishu/consent`,
    }),
  },
  teams: {
    panel: {
      title: { zh: "编辑组", en: "Editors" },
      members: ["writer", "critic"],
      select: "round_robin",
      end: { messages: 6, mention: "APPROVED", from: ["critic"] },
    },
  },
};
