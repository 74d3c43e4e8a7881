# Runs wstest (Python 2.7) with its server modes bound to 127.0.0.1 instead of every address.
import autobahn.twisted.websocket as websocket

listen = websocket.listenWS
websocket.listenWS = lambda factory, context=None, backlog=50, interface='': listen(factory, context, backlog, '127.0.0.1')

from autobahntestsuite import wstest

wstest.run()
