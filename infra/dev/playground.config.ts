// What `npm start` shows with the simulated platform and the scripted model, while there is no larkline.config.ts.
export default { agents: { default: { memory: { person: "direct", chat: true } } } };
