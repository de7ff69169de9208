// A WebRTC peer as media servers are built: every connection arrives on one UDP port and is told apart by ICE.
//
//	single_port_peer ADDRESS:PORT SOCKET
//
// Offers come as HTTP POSTs over the Unix socket, which reaches across network namespaces; the answer has the
// one candidate ADDRESS:PORT. Every message on a data channel is sent back, after the connection's own number.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"sync/atomic"

	"github.com/pion/webrtc/v3"
)

type peer struct {
	api         *webrtc.API
	connections int64
}

func newPeer(address string) (*peer, error) {
	udpAddress, err := net.ResolveUDPAddr("udp4", address)
	if err != nil {
		return nil, err
	}
	socket, err := net.ListenUDP("udp4", udpAddress)
	if err != nil {
		return nil, err
	}
	settings := webrtc.SettingEngine{}
	settings.SetNetworkTypes([]webrtc.NetworkType{webrtc.NetworkTypeUDP4})
	settings.SetICEUDPMux(webrtc.NewICEUDPMux(nil, socket))
	settings.SetIPFilter(func(ip net.IP) bool { return ip.Equal(udpAddress.IP) })
	return &peer{api: webrtc.NewAPI(webrtc.WithSettingEngine(settings))}, nil
}

func (p *peer) answer(offer webrtc.SessionDescription) (*webrtc.SessionDescription, error) {
	connection, err := p.api.NewPeerConnection(webrtc.Configuration{})
	if err != nil {
		return nil, err
	}
	number := atomic.AddInt64(&p.connections, 1)
	connection.OnConnectionStateChange(func(state webrtc.PeerConnectionState) {
		log.Printf("connection %d: %s", number, state)
	})
	connection.OnDataChannel(func(channel *webrtc.DataChannel) {
		channel.OnMessage(func(message webrtc.DataChannelMessage) {
			if err := channel.SendText(fmt.Sprintf("%d %s", number, message.Data)); err != nil {
				log.Printf("connection %d: %v", number, err)
			}
		})
	})
	if err := connection.SetRemoteDescription(offer); err != nil {
		return nil, err
	}
	answer, err := connection.CreateAnswer(nil)
	if err != nil {
		return nil, err
	}
	gathered := webrtc.GatheringCompletePromise(connection)
	if err := connection.SetLocalDescription(answer); err != nil {
		return nil, err
	}
	<-gathered
	return connection.LocalDescription(), nil
}

func (p *peer) ServeHTTP(response http.ResponseWriter, request *http.Request) {
	var offer webrtc.SessionDescription
	if err := json.NewDecoder(request.Body).Decode(&offer); err != nil {
		http.Error(response, err.Error(), http.StatusBadRequest)
		return
	}
	answer, err := p.answer(offer)
	if err != nil {
		http.Error(response, err.Error(), http.StatusInternalServerError)
		return
	}
	if err := json.NewEncoder(response).Encode(answer); err != nil {
		log.Print(err)
	}
}

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: single_port_peer ADDRESS:PORT SOCKET")
	}
	p, err := newPeer(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("unix", os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	log.Print("ready")
	log.Fatal(http.Serve(listener, p))
}
