// What `npm start` shows with the simulated platform and the scripted model, while there is no larkline.config.ts.
const memory = { person: "direct", chat: true };

export default {
  agents: {
    default: {
      memory,
      files: true,
      todos: true,
      questions: true,
      description: "The front desk.",
      handoffs: [
        { agent: "expert", when: "the person asks for the expert" },
        { agent: "panel", when: "the person asks for the team" },
      ],
      helpers: [{ agent: "helper", as: "send_helper" }],
    },
    expert: { memory, questions: true, description: "Knows everything about Larkline.", handoffs: ["default"] },
    helper: { instructions: "You are a helper.", description: "Looks at one thing.", tools: ["wait"] },
    writer: { instructions: "You write.", description: "Writes texts.", tools: [] },
    critic: {
      instructions: "You criticise. Say APPROVED when a text is good.",
      description: "Reads texts.",
      tools: [],
    },
  },
  feishu: { feedback: true },
  teams: {
    panel: {
      members: ["writer", "critic"],
      select: "round_robin",
      end: { messages: 6, mention: "APPROVED", from: ["critic"] },
    },
  },
};
